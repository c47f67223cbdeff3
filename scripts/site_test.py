#!/usr/bin/env python3
"""Tests the site: its front page agrees with README and the record, all pages are in it, and no link is broken.

The pages themselves are built if mdBook and rustdoc's pages are there (`site.sh --fetch`, `cargo doc`), and Chromium opens
them if it is there. `--fetch` fetches mdBook and does nothing else.
"""

import csv
import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Loaded by its path, because Python has a module of this name.
SPEC = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts/site.py")
site_pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site_pages)
front = site_pages.front
README = (ROOT / "README.md").read_text()
# Documents without a page: a table of test results that README of core does not need either, and the first page of the
# engine's documentation, which the site has from rustdoc.
WITHOUT_PAGE = {"core/tests/mutants/RESULTS.md", "src/README.md"}


def read_rows():
    with front.RECORD.open(newline="") as file:
        return list(csv.DictReader(file))


def write_front(rows=None):
    return front.write_front(site_pages.CHAPTERS, site_pages.PAGES, rows)


def plain(text):
    """Returns text without tags, marks of Markdown and line breaks."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "")
    return html.unescape(" ".join(re.sub(r"<[^>]*>", "", text).split()))


class FrontPage(unittest.TestCase):
    def test_figures_are_those_of_the_record(self):
        page = write_front()
        for method in front.METHODS:
            ends = [float(row["score"]) for row in read_rows() if (row["experiment"], row["method"], row["step"]) == ("bad_image", method, "60")]
            self.assertTrue(ends)
            for value in (min(ends), max(ends)):
                self.assertIn(f"{value:.1f}", plain(page), method)

    def test_another_record_gives_another_picture(self):
        for method in front.METHODS:
            rows = read_rows()
            for row in rows:
                if row["method"] == method:
                    row["score"] = str(float(row["score"]) - 1)
            self.assertNotEqual(write_front(rows), write_front(), method)

    def test_a_record_that_contradicts_the_words_is_an_error(self):
        rows = read_rows()
        for row in rows:
            if row["method"] == "torch.amp":
                row["score"] = "99"
        with self.assertRaises(front.FrontPageError):
            write_front(rows)
        with self.assertRaises(front.FrontPageError):
            write_front([row for row in rows if row["method"] != "attach"])

    def test_commands_are_those_of_readme(self):
        block = re.search(r"<pre.*?</pre>", write_front(), re.S)[0]
        commands = [line for line in re.sub(r'<span class="note">.*?</span>', "", block).splitlines()]
        commands = [plain(line) for line in commands if plain(line)]
        self.assertEqual(len(commands), 3)
        known = {line.split("#")[0].strip() for line in README.splitlines()}
        for command in commands:
            self.assertIn(command, known)

    def test_advice_is_that_of_readme(self):
        advice = re.search(r'<h2 id="use">.*?</ul>', write_front(), re.S)[0]
        sentences = [plain(one) for one in re.findall(r"<li>(.*?)</li>", advice, re.S)]
        self.assertEqual(len(sentences), 3)
        for sentence in sentences:
            # The paragraph on cost has other sentences between.
            for part in sentence.removeprefix("Cost. ").split("\n"):
                self.assertIn(part, plain(README))

    def test_nothing_is_left_to_fill_in(self):
        self.assertNotIn("{{", write_front())


class Pages(unittest.TestCase):
    def test_each_document_is_in_a_chapter(self):
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
        listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        # A file that is deleted and not committed is still listed.
        documents = {path for path in listed if (ROOT / path).exists()} - WITHOUT_PAGE
        self.assertEqual(documents, set(site_pages.PAGES))
        self.assertEqual(len(set(site_pages.PAGES.values())), len(site_pages.PAGES))
        self.assertNotIn("index.md", site_pages.PAGES.values())

    def test_links_of_the_front_page_lead_to_pages(self):
        # Tested without mdBook too; rustdoc's pages are tested with the built site.
        known = {page.removesuffix("md") + "html" for page in site_pages.PAGES.values()} | {"index.html", "api.html", "site.css"}
        for link in re.findall(r'(?:href|src)="([^"]+)"', write_front()):
            page, _, anchor = link.partition("#")
            if page.startswith("docs/"):
                self.assertTrue((ROOT / page).exists(), link)
            elif page and not page.startswith(("api/", "data:")):
                self.assertIn(page, known)
            if page and anchor:
                document = next(path for path, name in site_pages.PAGES.items() if name == page.removesuffix("html") + "md")
                headings = re.findall(r"^#+ (.*)$", (ROOT / document).read_text(), re.M)
                self.assertIn(anchor, [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings])

    def test_the_page_in_the_browser_is_part_of_the_site(self):
        with tempfile.TemporaryDirectory() as folder:
            site, built = Path(folder) / "site", Path(folder) / "built"
            site.mkdir()
            shutil.copytree(ROOT / "web/page", built)
            self.assertFalse(site_pages.add_browser_page(site, built))
            (built / "gradscale_web.wasm").touch()
            self.assertTrue(site_pages.add_browser_page(site, built))
            for page in site_pages.BROWSER_LINKS.values():
                (site / page).touch()
            _, links, bad = site_pages.find_dead_links(site)
            self.assertEqual(bad, [])
            self.assertGreaterEqual(links, 5)
            link = front.BROWSER.partition('href="')[2].partition('"')[0]
            self.assertTrue((site / link).exists())
        shown = [link in front.write_front(site_pages.CHAPTERS, site_pages.PAGES, has_browser_page=has) for has in (True, False)]
        self.assertEqual(shown, [True, False])

    def test_dead_links_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            site = Path(folder)
            (site / "there").mkdir()
            (site / "other.html").write_text('<p id="here">')
            good = ["other.html", "other.html#here", "#own", "https://example.org/nowhere"]
            dead = ["nowhere.html", "other.html#nowhere", "#nowhere", "there"]
            (site / "index.html").write_text('<p id="own">' + "".join(f'<a href="{link}">x</a>' for link in good + dead))
            pages, links, bad = site_pages.find_dead_links(site)
            self.assertEqual((pages, links), (2, len(good) + len(dead)))
            self.assertEqual(bad, [f"index.html: {link}" for link in dead])


class Built(unittest.TestCase):
    def test_the_site_as_visitors_have_it(self):
        metadata = subprocess.run(
            ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        target = Path(json.loads(metadata.stdout)["target_directory"])
        mdbook = shutil.which("mdbook", path=f"{os.environ['PATH']}:{target}/site-tools/bin")
        if not mdbook or not (target / "doc/gradscale/index.html").exists():
            self.skipTest("needs mdBook (scripts/site.sh --fetch) and rustdoc's pages (cargo doc)")
        with tempfile.TemporaryDirectory() as folder:
            # The site is served from a subfolder, as GitHub's pages are.
            book, site = Path(folder) / "book", Path(folder) / "served/gradscale"
            book.mkdir()
            try:
                site_pages.sources(target / "doc", book)
            except SystemExit as missing:
                self.fail(f"{missing}. Rustdoc's pages may be older than the documents: cargo doc --profile tested --workspace --no-deps")
            subprocess.run([mdbook, "build", str(book), "--dest-dir", str(site)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            shutil.copytree(target / "doc", site / "api")
            site_pages.join(site)
            pages, links, bad = site_pages.find_dead_links(site)
            print(f"{pages} pages, {links} links")
            self.assertGreater(pages, len(site_pages.PAGES))
            self.assertEqual(bad, [])
            if not shutil.which("node") or not shutil.which(os.environ.get("CHROMIUM", "chromium")):
                self.skipTest("links are checked; opening the pages needs node and chromium")
            subprocess.run(["node", ROOT / "scripts/site/look.mjs", site], check=True)


if __name__ == "__main__":
    if "--fetch" in sys.argv:
        sys.exit(subprocess.run([ROOT / "scripts/site.sh", "--fetch"], check=False).returncode)
    unittest.main()
