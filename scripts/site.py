#!/usr/bin/env python3
"""Pages of the site, in three steps.

- `site.py sources API BOOK` writes the folder BOOK that mdBook reads. Its links to items lead to rustdoc's pages API, which
  the site has as `api/`.
- `site.py join SITE` writes the front page, links rustdoc's pages with the rest, and copies the style sheet.
- `site.py check SITE` fails if a link of a built page leads nowhere.
"""

import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
PARTS = ROOT / "scripts/site"
sys.path.insert(0, str(PARTS))
import front  # noqa: E402

# Chapters, each with its pages: title and source file.
CHAPTERS = {
    "": [("Overview", "README.md")],
    "Guide": [
        ("The method in one page", "docs/guide/method.md"),
        ("When to use it, and when not", "docs/guide/when-to-use.md"),
        ("Control: what a loss scale does with batches", "docs/guide/control.md"),
        ("Operators and layers", "docs/guide/operators.md"),
        ("Extending", "docs/guide/extending.md"),
        ("Distributed training", "docs/guide/distributed.md"),
        ("Eight bits", "docs/guide/eight-bits.md"),
        ("Cost", "docs/guide/cost.md"),
        ("Comparison with the paper's algorithm", "docs/guide/paper-comparison.md"),
        ("Migrating from torch.amp", "docs/guide/migrating-from-torch.md"),
        ("The PyTorch package", "docs/guide/pytorch-package.md"),
        ("Integrations: PyTorch's training libraries, ggml, tiny-cuda-nn, burn, candle", "docs/guide/integrations.md"),
    ],
    "Reference": [
        ("The program", "docs/cli.md"),
        ("Data layouts", "docs/data.md"),
        ("Glossary", "docs/glossary.md"),
        ("Specification", "docs/specification.md"),
    ],
    "Results": [
        ("Where one loss scale fails", "docs/natural.md"),
        ("What became of the claims", "docs/claims.md"),
        ("Regimes that people meet", "docs/regimes.md"),
        ("Science", "docs/science.md"),
        ("Workloads", "docs/workloads.md"),
        ("Workloads in eight bits", "docs/eight-bits.md"),
        ("Beside PyTorch", "docs/against-pytorch.md"),
        ("The CPU beside others", "docs/performance.md"),
        ("GPUs", "docs/gpu.md"),
    ],
    "Devices": [
        ("CPU", "backend-cpu/README.md"),
        ("wgpu", "backend-wgpu/README.md"),
        ("CUDA", "backend-cuda/README.md"),
        ("CUDA: notes", "docs/gpu-notes.md"),
        ("Your own: the suite", "tests/README.md"),
    ],
    "Other frameworks of Rust": [
        ("Adapters", "adapters/README.md"),
        ("burn", "adapters/burn/README.md"),
        ("candle", "adapters/candle/README.md"),
        ("Your own", "adapters/common/README.md"),
    ],
    "Other languages": [
        ("Python", "python/README.md"),
        ("numpy", "docs/numpy.md"),
        ("PyTorch: details", "docs/pytorch-notes.md"),
        ("C and C++", "capi/README.md"),
        ("JavaScript", "npm/README.md"),
        ("The page in the browser", "web/README.md"),
    ],
    "The project": [
        ("The crate of the program", "cli/README.md"),
        ("The core", "core/README.md"),
        ("The crate of data sets", "data/README.md"),
        ("Architecture", "ARCHITECTURE.md"),
        ("Life of a step", "docs/life-of-a-step.md"),
        ("Decisions", "docs/decisions/README.md"),
        ("Making a release", "docs/release.md"),
        ("Contributing", "CONTRIBUTING.md"),
        ("Test times", "docs/test-times.md"),
        ("Changelog", "CHANGELOG.md"),
    ],
}
# A page for each decision, by its heading.
CHAPTERS["Decisions"] = [
    (page.read_text().partition("\n")[0].removeprefix("# "), str(page.relative_to(ROOT)))
    for page in sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
]
PAGES = {path: path.replace("/", "-").lower().replace("readme.md", "index.md") for pages in CHAPTERS.values() for _, path in pages}
# The front page is index.html, so README becomes another page.
PAGES["README.md"] = "overview.md"
LINK = re.compile(r"(\[[^\]\n]*\])\(([^()\s]+)\)")


class Api:
    """Pages of rustdoc by the items that they describe."""

    def __init__(self, folder):
        self.folder = folder
        self.pages = {}
        for page in sorted(folder.glob("gradscale*/**/*.html")):
            # struct.Name.html, or a module's index.html.
            name = page.parent.name if page.name == "index.html" else page.name.removesuffix(".html").partition(".")[2]
            self.pages.setdefault(name, []).append(page)

    def page(self, names):
        """The page of an item: of several with its name the one whose place has most of the other names, and is nearest."""
        found = self.pages.get(names[-1], [])
        score = lambda page: (-len(set(names) & set(page.parts)), "core" in page.parts[-3:-1], len(page.parts))
        return min(found, key=score, default=None)

    def link(self, path):
        """Returns the page that describes a path such as `crate::nn::Linear::new`."""
        names = path.split("::")[1:]
        if page := self.page(names):
            return f"api/{page.relative_to(self.folder)}"
        if len(names) > 1 and (page := self.page(names[:-1])):
            for kind in "method", "tymethod", "structfield", "variant":
                if f'id="{kind}.{names[-1]}"' in page.read_text():
                    return f"api/{page.relative_to(self.folder)}#{kind}.{names[-1]}"
        return None


def sources(api, book):
    """Writes the source files of the book for mdBook."""
    api, to = Api(api), book / "src"
    to.mkdir(parents=True)
    summary = ["# Summary", ""]
    for chapter, pages in CHAPTERS.items():
        summary += [f"\n# {chapter}\n"] if chapter else []
        for title, path in pages:
            summary.append(f"[{title}]({PAGES[path]})" if not chapter else f"- [{title}]({PAGES[path]})")
            (to / PAGES[path]).write_text(page(api, ROOT / path, to))
    summary.append("\n# Interface\n")
    summary.append("- [All libraries](api.md)")
    libraries = sorted(one.name for one in api.folder.glob("gradscale*") if (one / "index.html").exists())
    lines = [f"- [`{name}`](api/{name}/index.html)" for name in libraries]
    (to / "api.md").write_text("# Interface\n\nWhat rustdoc writes of each library:\n\n" + "\n".join(lines) + "\n")
    (to / "SUMMARY.md").write_text("\n".join(summary) + "\n")
    theme = book / "theme"
    theme.mkdir()
    shutil.copyfile(PARTS / "header.hbs", theme / "header.hbs")
    shutil.copyfile(PARTS / "site.css", book / "site.css")
    # mdBook's page for missing addresses needs the site's own address, which is not known here.
    (book / "book.toml").write_text(
        '[book]\ntitle = "gradscale"\nlanguage = "en"\n\n[output.html]\nno-section-label = true\ndefault-theme = "light"\n'
        'preferred-dark-theme = "navy"\ninput-404 = ""\n'
        'additional-css = ["site.css"]\n\n[output.html.fold]\nenable = false\n\n[output.html.playground]\nrunnable = false\n'
    )


def page(api, path, to):
    """Returns a page with links to other pages of the site, and copies the files that it shows."""

    def target(match):
        text, link = match.groups()
        if link.startswith("crate::guide::"):
            return f"{text}({PAGES['docs/guide/' + link.rpartition('::')[2].replace('_', '-') + '.md']})"
        if link.startswith("crate::"):
            found = api.link(link)
            if not found:
                sys.exit(f"{path.relative_to(ROOT)}: nothing is called {link}")
            return f"{text}({found})"
        file, mark, place = link.partition("#")
        there = (path.parent / file).resolve()
        if "://" in link or not file or not there.exists():
            return match.group(0)
        known = str(there.relative_to(ROOT))
        if known in PAGES:
            return f"{text}({PAGES[known]}{mark}{place})"
        if there.is_dir():
            # The checkout has it, the site has not.
            return text[1:-1]
        copied = to / known
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(there, copied)
        return f"{text}({known})"

    text = LINK.sub(target, path.read_text())
    # Pictures that are written as HTML.
    for source in re.findall(r'<img src="([^":]+)"', text):
        copied = to / source
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.parent / source, copied)
    # Names of items without a path are rustdoc's to find.
    return re.sub(r"\[(`[^`\]]+`)\](\([a-z]+@[^)]*\))?(?![(\[:])", r"\1", text)


# Links of the page in the browser: files of its own where it is alone, and pages of the site that they correspond to.
BROWSER_LINKS = {"project.txt": "index.html", "guide.txt": PAGES["docs/guide/method.md"].removesuffix("md") + "html"}


def add_browser_page(site, built):
    """Copies the page in the browser from the folder of `web/build.sh`, and links it with the site. Returns false if it is not built."""
    if not (built / "gradscale_web.wasm").exists():
        return False
    shutil.copytree(built, site / "browser", ignore=shutil.ignore_patterns(*BROWSER_LINKS))
    page = site / "browser/index.html"
    text = page.read_text()
    for alone, known in BROWSER_LINKS.items():
        if f'href="{alone}"' not in text:
            sys.exit(f"web/page/index.html has no link to {alone}, which the site would lead to {known}")
        text = text.replace(f'href="{alone}"', f'href="../{known}"')
    page.write_text(text)
    return True


def join(site):
    """Writes the front page, and adds a way back to all pages of rustdoc."""
    shutil.copyfile(PARTS / "site.css", site / "site.css")
    has_browser_page = add_browser_page(site, ROOT / "web/site")
    (site / "index.html").write_text(front.write_front(CHAPTERS, PAGES, has_browser_page=has_browser_page))
    for one in sorted(site.glob("api/**/*.html")):
        root = "../" * (len(one.relative_to(site).parts) - 1)
        back = f'<p class="site-back"><a href="{root}index.html">gradscale: front page</a> · <a href="{root}api.html">all libraries</a></p>'
        text = one.read_text()
        one.write_text(re.sub(r'(<section id="main-content"[^>]*>)', lambda match: match[1] + back, text, count=1))


class Links(HTMLParser):
    """Links and identifiers of a page."""

    def __init__(self):
        super().__init__()
        self.links, self.places = [], set()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.links += [attributes[key] for key in ("href", "src") if attributes.get(key)]
        self.places.add(attributes.get("id"))


def find_dead_links(site):
    """Returns the number of pages and of links, and a line for each link that leads nowhere."""
    read, bad = {}, []

    def read_page(page):
        if page not in read:
            read[page] = Links()
            read[page].feed(page.read_text())
        return read[page]

    pages = [page for page in site.glob("*.html") if page.name not in ("404.html", "print.html", "toc.html")]
    pages += [*site.glob("api/gradscale*/index.html"), *site.glob("browser/index.html")]
    for one in sorted(pages):
        for link in read_page(one).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = (one.parent / unquote(parts.path)).resolve() if parts.path else one
            # A folder has no page where the site opens from a file.
            missing = not there.is_file()
            if not missing and parts.fragment and there.suffix == ".html":
                missing = unquote(parts.fragment) not in read_page(there).places
            # Lines of a source are marked by a script.
            if missing and not (there.exists() and re.fullmatch(r"\d+-\d+", parts.fragment)):
                bad.append(f"{one.relative_to(site)}: {link}")
    return len(pages), sum(len(read_page(one).links) for one in pages), bad


def check(site):
    """Prints how many links the site has, and fails if one leads nowhere."""
    pages, links, bad = find_dead_links(site)
    print(f"{pages} pages, {links} links")
    if bad:
        sys.exit("lead nowhere:\n" + "\n".join(bad))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "sources":
        sources(Path(sys.argv[2]), Path(sys.argv[3]))
    elif len(sys.argv) == 3 and sys.argv[1] == "join":
        join(Path(sys.argv[2]))
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        check(Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
