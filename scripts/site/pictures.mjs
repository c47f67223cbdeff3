// Takes README's pictures of a report: docs/report-desktop.png and docs/report-phone.png, the first screen of each.
// Usage: gradscale compare --out demo && node scripts/site/pictures.mjs demo/report.html
import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Browser } from "../../web/test/chromium.mjs";

const page = pathToFileURL(resolve(process.argv[2])).href;
const folder = fileURLToPath(new URL("../../docs", import.meta.url));
// A little less than the screens of 1280 × 800 and 390 × 844, so that the pictures end with the histograms.
const SCREENS = { desktop: [1280, 700, 1, false], phone: [390, 780, 1.5, true] };

const browser = await Browser.start();
try {
  for (const [name, [width, height, deviceScaleFactor, mobile]] of Object.entries(SCREENS)) {
    await browser.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor, mobile });
    await browser.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "light" }] });
    await browser.open(page);
    const { data } = await browser.send("Page.captureScreenshot", { format: "png" });
    writeFileSync(`${folder}/report-${name}.png`, data, "base64");
  }
} finally {
  await browser.close();
}
