// Drawings: losses, scales, histograms, digits.
import { spoken } from "./methods.js";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

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

// Space around a plot for its labels.
const [LEFT, BOTTOM, TOP] = [34, 18, 6];

/** Draws axes with a line and a label at each tick; returns the places of steps and of values. */
function axes({ pen, width, height }, last, [low, high], ticks, label) {
  const x = (step) => LEFT + (step / last) * (width - LEFT - 4);
  const y = (value) => TOP + (1 - (value - low) / (high - low)) * (height - TOP - BOTTOM);
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const tick of ticks) {
    pen.strokeStyle = style("line");
    pen.beginPath();
    pen.moveTo(LEFT, y(tick));
    pen.lineTo(width, y(tick));
    pen.stroke();
    pen.fillStyle = style("dim");
    pen.fillText(label(tick), LEFT - 6, y(tick));
  }
  pen.textBaseline = "alphabetic";
  const every = [20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000].find((step) => last / step <= width / 70) ?? 200000;
  for (let step = 0; step <= last; step += every) {
    pen.textAlign = step === 0 ? "left" : x(step) > width - 20 ? "right" : "center";
    pen.fillText(step === 0 ? "step 0" : String(step), x(step), height - 3);
  }
  return [x, y];
}

/** Marks the steps where a setting has changed, the last of them with words. */
function marks({ pen, width, height }, x, events) {
  events.forEach(({ step, what }, i) => {
    pen.strokeStyle = style("lost");
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(x(step), TOP);
    pen.lineTo(x(step), height - BOTTOM);
    pen.stroke();
    pen.setLineDash([]);
    if (i < events.length - 1) return;
    const [long, right] = [pen.measureText(what).width, x(step) > width / 2];
    const from = right ? x(step) - 4 - long : x(step) + 4;
    pen.fillStyle = style("paper");
    pen.fillRect(from - 2, TOP, long + 4, 15);
    pen.fillStyle = style("lost");
    pen.textAlign = "left";
    pen.fillText(what, from, TOP + 11);
  });
}

/** Draws a line for each method, dashed where several coincide. */
function lines(pen, methods, draw) {
  methods.forEach(({ name, points }, i) => {
    pen.strokeStyle = style(name);
    pen.lineWidth = 2;
    pen.setLineDash(i === 0 ? [] : [9, 3 * i]);
    draw(points);
  });
  pen.setLineDash([]);
  pen.lineWidth = 1;
}

const lastStep = (methods) => Math.max(100, ...methods.map(({ points }) => points.at(-1)?.step ?? 0));

/** Draws the loss of each method over the steps. */
export function losses(canvas, methods, events) {
  const drawing = sheet(canvas);
  const { pen } = drawing;
  const most = Math.max(2.5, ...methods.flatMap(({ points }) => points.map(({ loss }) => Math.min(loss, 5))));
  // Labels are 12 pixels high.
  const apart = (drawing.height * 0.5) / most < 20 ? 1 : 0.5;
  const ticks = Array.from({ length: Math.floor(most / apart) + 1 }, (_, i) => apart * i);
  const [x, y] = axes(drawing, lastStep(methods), [0, most], ticks, (loss) => loss.toFixed(1));
  lines(pen, methods, (points) => {
    pen.beginPath();
    for (const { step, loss } of points) pen.lineTo(x(step), y(Math.min(loss, most)));
    pen.stroke();
  });
  marks(drawing, x, events);
}

/** Draws the exponents of the scales of each method over the steps: one line for a loss scale, one for each gradient's. */
export function scales(canvas, methods, events) {
  const drawing = sheet(canvas);
  const { pen } = drawing;
  const all = methods.flatMap(({ points }) => points.flatMap(({ exponents }) => exponents));
  // Multiples of 8, which are the ticks.
  const low = 8 * Math.floor((Math.min(0, ...all) - 1) / 8);
  const high = 8 * Math.ceil((Math.max(16, ...all) + 1) / 8);
  const between = high - low > 64 ? 16 : 8;
  const ticks = [];
  for (let at = between * Math.ceil(low / between); at <= high; at += between) ticks.push(at);
  const [x, y] = axes(drawing, lastStep(methods), [low, high], ticks, spoken);
  lines(pen, methods, (points) => {
    for (let i = 0; i < Math.max(0, ...points.map(({ exponents }) => exponents.length)); i++) {
      pen.beginPath();
      for (const { step, exponents } of points) if (i < exponents.length) pen.lineTo(x(step), y(exponents[i]));
      pen.stroke();
    }
  });
  marks(drawing, x, events);
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
