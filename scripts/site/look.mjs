// Opens pages of the built site in Chromium, as files and below a path of a server, on a desktop and on a phone, light and
// dark. Usage: look.mjs SITE [SCREENSHOTS]. Fails if a page scrolls sideways, has no way back, text of too little contrast,
// or no visible keyboard focus, or if the front page has no picture above the fold.
import { mkdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Browser, serve } from "../../web/test/chromium.mjs";

const [site, screenshots] = process.argv.slice(2).map((path) => resolve(path));
// The front page, and one page of each kind: README, guide, wide tables, generated results, program, rustdoc.
const PAGES = ["index.html", "overview.html", "docs-guide-method.html", "docs-claims.html", "docs-gpu.html", "docs-data.html", "docs-cli.html", "api.html",
  "api/gradscale/index.html"];
const SIZES = { desktop: [1280, 800, false], phone: [390, 844, true] };
// WCAG 2.1, success criterion 1.4.3, for text of usual size.
const LEAST_CONTRAST = 4.5;

/** Runs in the page: whether a link to an address is in view, and not covered. */
function findWayBack(address) {
  return [...document.querySelectorAll("a")].some((link) => {
    const { left, top, width, height } = link.getBoundingClientRect();
    return link.href === address && link.contains(document.elementFromPoint(left + width / 2, top + height / 2));
  });
}

/** Runs in the page: texts whose contrast with their background is too low, each with its contrast. */
function findFaintTexts(least) {
  const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (color) => {
    const [r, g, b] = color.slice(0, 3).map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = parse(getComputedStyle(one).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const faint = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    // Colours of highlighted code and of rustdoc's pages are not ours.
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("script, style, .hljs, .rustdoc, #mdbook-help-popup")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [luminance(parse(element.closest("svg.picture") ? style.fill : style.color)), luminance(background(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < least) faint.set(`"${walker.currentNode.data.trim().slice(0, 40)}" has contrast ${contrast.toFixed(2)}`, true);
  }
  return [...faint.keys()].slice(0, 5);
}

const failures = [];
const server = await serve(dirname(site));
const browser = await Browser.start();
try {
  for (const [place, base] of [["file", pathToFileURL(site).href], ["path", `${server.url}${basename(site)}`]]) {
    // On a server only the paths of links and style sheets differ, of which there are three kinds.
    for (const page of place === "file" ? PAGES : ["index.html", "docs-guide-method.html", "api/gradscale/index.html"]) {
      for (const [size, [width, height, mobile]] of Object.entries(SIZES)) {
        for (const scheme of ["light", "dark"]) {
          const fail = (what) => failures.push(`${page}, ${place}, ${size}, ${scheme}: ${what}`);
          await browser.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile });
          await browser.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
          browser.said.length = 0;
          await browser.open(`${base}/${page}`);
          const wide = await browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
          if (wide > 0) fail(`${wide} pixels wider than the window`);
          const back = await browser.value(`(${findWayBack})(${JSON.stringify(`${base}/index.html`)})`);
          if (!back) fail("no link to the front page in view");
          for (const text of await browser.value(`(${findFaintTexts})(${LEAST_CONTRAST})`)) fail(text);
          if (page === "index.html") {
            const [top, bottom] = await browser.value("(({ top, bottom }) => [top, bottom])(document.querySelector('svg.picture').getBoundingClientRect())");
            if (!(top >= 0 && bottom <= height)) fail(`the picture ends at ${bottom} of ${height} pixels`);
          }
          for (const said of browser.said) fail(`console: ${said}`);
          if (screenshots) {
            mkdirSync(screenshots, { recursive: true });
            const { data } = await browser.send("Page.captureScreenshot", { format: "png" });
            if (place === "file") writeFileSync(join(screenshots, `${page.replaceAll("/", "-").replace(".html", "")}-${size}-${scheme}.png`), data, "base64");
          }
          if (page === "index.html" && place === "file") {
            // Each link in turn, by the keyboard.
            const links = await browser.value("document.querySelectorAll('a, pre[tabindex]').length");
            const seen = new Set();
            for (let i = 0; i < links; i++) {
              for (const type of ["keyDown", "keyUp"]) await browser.send("Input.dispatchKeyEvent", { type, key: "Tab", code: "Tab", windowsVirtualKeyCode: 9 });
              const [name, style, thickness] = await browser.value(
                `((e, s = getComputedStyle(e)) => [(e.href ?? e.localName) + e.textContent, s.outlineStyle, parseFloat(s.outlineWidth)])(document.activeElement)`,
              );
              seen.add(name);
              if (style === "none" || thickness < 2) fail(`no focus to be seen at ${name}`);
            }
            if (seen.size < links / 2) fail(`the keyboard reaches ${seen.size} of ${links} links`);
          }
        }
      }
    }
  }
} finally {
  await browser.close();
  server.close();
}
console.log(`${PAGES.length} pages in Chromium, ${failures.length} failures`);
if (failures.length) {
  console.error(failures.join("\n"));
  process.exit(1);
}
