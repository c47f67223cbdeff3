#!/usr/bin/env python3
"""Tests of scripts/release.py, and that a version that is not ready is not tagged.

`--fetch` fetches nothing, because nothing is needed.
"""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import release

ROOT = release.ROOT
REPOSITORY = "https://example.org/it"


def links(text, folder="python"):
    return release.with_absolute_links(text, folder, REPOSITORY, "v1.2.3")


class Links(unittest.TestCase):
    def test_relative_links_lead_to_the_repository(self):
        self.assertEqual(links("[a](../docs/a.md#b) and [c](examples)"),
                         f"[a]({REPOSITORY}/blob/v1.2.3/docs/a.md#b) and [c]({REPOSITORY}/blob/v1.2.3/python/examples)")

    def test_pictures_lead_to_the_file_itself(self):
        self.assertEqual(links("![p](p.png)"), f"![p]({REPOSITORY}/raw/v1.2.3/python/p.png)")
        self.assertEqual(links("[![p](p.png)](q.md)"), f"[![p]({REPOSITORY}/raw/v1.2.3/python/p.png)]({REPOSITORY}/blob/v1.2.3/python/q.md)")

    def test_other_links_and_code_stay(self):
        for text in "[a](https://x.org/y)", "[a](#b)", "`x[0](y)`", "```py\nx[0](y)\n```\n", "[mail](mailto:a@b.c)":
            self.assertEqual(links(text), text)

    def test_no_link_of_the_python_package_is_relative(self):
        text = links((ROOT / "python/README.md").read_text())
        found = [one[3] for one in release.LINK.finditer(text)]
        self.assertTrue(any(link.startswith(REPOSITORY) for link in found))
        for link in found:
            self.assertRegex(link, "^(https://|#)")
            if link.startswith(f"{REPOSITORY}/blob/v1.2.3/"):
                self.assertTrue((ROOT / link.removeprefix(f"{REPOSITORY}/blob/v1.2.3/").partition("#")[0]).exists(), link)


class State(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        for name in {*release.VERSIONS, *release.TEXTS}:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def change(self, name, before, after):
        text = (self.root / name).read_text()
        self.assertIn(before, text)
        (self.root / name).write_text(text.replace(before, after))

    def test_packages_have_one_version(self):
        self.assertEqual(list(release.disagreements(ROOT)), [])
        number = release.version(ROOT)
        self.change("npm/package.json", f'"version": "{number}"', '"version": "9.9.9"')
        self.change("adapters/Cargo.toml", f'path = "..", version = "{number}"', 'path = "..", version = "9.9.8"')
        found = "\n".join(release.disagreements(self.root))
        self.assertIn("npm/package.json: version 9.9.9", found)
        self.assertIn("adapters/Cargo.toml: gradscale is required at 9.9.8", found)

    def test_a_date_is_missing_or_wrong(self):
        number = release.version(ROOT)
        heading, text = release.section(ROOT, number)
        self.assertIn("### ", text)
        for written, complaint in (("(coming)", "has no date"), ("(2026-13-01)", "is no date"), ("(2026-12-01)", None)):
            (self.root / "CHANGELOG.md").write_text(f"## {number} {written}\n\n- Text.\n\n## 0.0.9 (2020-01-01)\n\n- Old.\n")
            found = [line for line in release.state(self.root) if line.startswith("CHANGELOG.md: ")]
            self.assertEqual([complaint in line for line in found], [True] if complaint else [], found)
            self.assertEqual(release.section(self.root, number)[1], "- Text.")
        (self.root / "CHANGELOG.md").write_text("## 0.0.9 (2020-01-01)\n\n- Old.\n")
        self.assertIn(f"CHANGELOG.md: no section of {number}", list(release.state(self.root)))

    def test_texts_that_deny_a_release_are_named(self):
        (self.root / "README.md").write_text("One.\n\nVersion 1.2 is not released yet.\n")
        self.assertIn('README.md:3: "not released" is not true of a release', list(release.state(self.root)))


class Tag(unittest.TestCase):
    def test_a_version_that_is_not_ready_is_not_tagged(self):
        if not list(release.state(ROOT)):
            self.skipTest("the version is ready")
        with tempfile.TemporaryDirectory() as scratch:
            clone = Path(scratch) / "clone"
            subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", "--depth=1", f"file://{ROOT}", clone], check=True)
            for name in "publish.sh", "release.py", "shared.sh":
                shutil.copy(ROOT / "scripts" / name, clone / "scripts" / name)
            done = subprocess.run([clone / "scripts/publish.sh", "--tag"], stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stdout.rstrip().rsplit("\n", 1)[-1], r"^FAILED: v\S+ is not ready to be tagged$")
            self.assertEqual(subprocess.run(["git", "tag"], cwd=clone, stdout=subprocess.PIPE, text=True, check=True).stdout, "")


if __name__ == "__main__":
    if sys.argv[1:] == ["--fetch"]:
        sys.exit()
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    print(f"PASSED: {result.testsRun} tests" if result.wasSuccessful() else "FAILED: see above")
    sys.exit(not result.wasSuccessful())
