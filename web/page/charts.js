// Drawings: losses, histograms, digits.

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** A power of two as people read it. */
export const spoken = (exponent) =>
  exponent === 0 ? "1" : `2${[...String(exponent)].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign])).join("")}`;

/** A canvas in its size on the screen, empty; its width and height in CSS pixels. */
function sheet(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = window.devicePixelRatio || 1;
  const size = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  pen.lineJoin = "round";
  return { pen, width, height };
}

/** Draws lines of [step, loss] for each method, dashed where several coincide. */
export function losses(canvas, lines) {
  const { pen, width, height } = sheet(canvas);
  const [left, bottom, top] = [34, 20, 6];
  const last = Math.max(100, ...lines.map(({ points }) => points.at(-1)?.[0] ?? 0));
  const most = Math.max(2.5, ...lines.flatMap(({ points }) => points.map(([, loss]) => Math.min(loss, 5))));
  const x = (step) => left + (step / last) * (width - left - 4);
  const y = (loss) => top + (1 - Math.min(loss, most) / most) * (height - top - bottom);
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (let loss = 0; loss <= most; loss += 0.5) {
    pen.strokeStyle = style("line");
    pen.beginPath();
    pen.moveTo(left, y(loss));
    pen.lineTo(width, y(loss));
    pen.stroke();
    pen.fillStyle = style("dim");
    pen.fillText(loss.toFixed(1), left - 6, y(loss));
  }
  pen.textBaseline = "alphabetic";
  const every = [20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000].find((step) => last / step <= 6) ?? 200000;
  for (let step = 0; step <= last; step += every) {
    pen.textAlign = step === 0 ? "left" : x(step) > width - 20 ? "right" : "center";
    pen.fillText(step === 0 ? "step 0" : String(step), x(step), height - 4);
  }
  lines.forEach(({ name, points }, i) => {
    pen.strokeStyle = style(name);
    pen.lineWidth = 2;
    pen.setLineDash(i === 0 ? [] : [9, 3 * i]);
    pen.beginPath();
    points.forEach(([step, loss]) => pen.lineTo(x(step), y(loss)));
    pen.stroke();
  });
  pen.setLineDash([]);
  pen.lineWidth = 1;
}

// Exponents of FP16's range: half its smallest subnormal number, its smallest normal one, and its largest.
const [LEAST, NORMAL, MOST] = [-25, -14, 16];
// Range of exponents that the charts show.
const [FROM, TO] = [-60, 20];

/** Draws a histogram in powers of two: `stored[i]` counts values up to 2^(FROM + i). */
export function histogram(canvas, stored, name) {
  const { pen, width, height } = sheet(canvas);
  const bottom = 18;
  const x = (exponent) => ((exponent - FROM + 1) / (TO - FROM + 2)) * width;
  const floor = height - bottom;
  pen.fillStyle = style("soft");
  pen.fillRect(0, 0, width, floor);
  pen.fillStyle = style("coarse");
  pen.fillRect(x(LEAST), 0, x(NORMAL) - x(LEAST), floor);
  pen.fillStyle = style("paper");
  pen.fillRect(x(NORMAL), 0, x(MOST) - x(NORMAL), floor);
  const most = Math.max(1, ...stored);
  stored.forEach((count, i) => {
    if (count === 0) return;
    const at = FROM + i;
    pen.fillStyle = style(at <= LEAST || at > MOST ? "lost" : name);
    // Every count above zero is visible.
    const tall = Math.max(2, (count / most) * (floor - 16));
    pen.fillRect(x(at - 1) + 0.5, floor - tall, x(at) - x(at - 1) - 1, tall);
  });
  pen.strokeStyle = style("dim");
  for (const at of [LEAST, MOST]) {
    pen.beginPath();
    pen.moveTo(x(at), 0);
    pen.lineTo(x(at), floor);
    pen.stroke();
  }
  pen.fillStyle = style("dim");
  pen.textAlign = "left";
  pen.fillText("zero", 4, 12);
  pen.fillText("FP16", x(LEAST) + 4, 12);
  pen.textAlign = "center";
  for (const at of [-50, -40, LEAST, NORMAL, 0, MOST]) pen.fillText(spoken(at), x(at), height - 4);
}

/** Draws images in a row, as many as fit. */
export function digits(canvas, images, side) {
  const { pen, width, height } = sheet(canvas);
  const room = Math.max(1, Math.floor(width / height));
  const ink = document.createElement("canvas");
  [ink.width, ink.height] = [side, side];
  const colour = style("ink").match(/[0-9a-f]{2}/gi).map((hex) => parseInt(hex, 16));
  for (let i = 0; i < Math.min(room, images.length / side ** 2); i++) {
    const pixels = new ImageData(side, side);
    for (let at = 0; at < side ** 2; at++) {
      pixels.data.set([...colour, 255 * images[i * side ** 2 + at]], 4 * at);
    }
    ink.getContext("2d").putImageData(pixels, 0, 0);
    pen.drawImage(ink, i * height, 0, height, height);
  }
}
