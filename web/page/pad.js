// The pad: strokes of mouse, pen or finger, as lists of points.

/**
 * Calls `drawn(strokes)` whenever something was added or wiped. A key from 0 to 9 replaces the drawing by the strokes that
 * `written(digit)` promises, around 0 and about 1 long.
 */
export function pad(canvas, wipe, drawn, written) {
  let strokes = [];
  const now = new Map();
  const paint = () => {
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.lineWidth = 14;
    pen.lineCap = pen.lineJoin = "round";
    pen.strokeStyle = getComputedStyle(canvas).color;
    for (const stroke of strokes) {
      pen.beginPath();
      pen.moveTo(...stroke[0]);
      // A dot is a line too.
      for (const point of stroke.length > 1 ? stroke : [stroke[0]]) pen.lineTo(...point);
      pen.stroke();
    }
  };
  const place = (event) => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    return [((event.clientX - left) / width) * canvas.width, ((event.clientY - top) / height) * canvas.height];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    const stroke = [place(event)];
    strokes.push(stroke);
    now.set(event.pointerId, stroke);
    paint();
    drawn(strokes);
  });
  canvas.addEventListener("pointermove", (event) => {
    const stroke = now.get(event.pointerId);
    if (!stroke) return;
    const [[x, y], [u, v]] = [place(event), stroke.at(-1)];
    if (Math.hypot(x - u, y - v) < 3) return;
    stroke.push([x, y]);
    paint();
    drawn(strokes);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => now.delete(event.pointerId));
  }
  const show = (all) => {
    strokes = all;
    paint();
    drawn(strokes);
  };
  canvas.addEventListener("keydown", async (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Delete" || event.key === "Backspace") show([]);
    else if (/^[0-9]$/.test(event.key)) {
      event.preventDefault();
      const size = 0.75 * canvas.width;
      const all = await written(Number(event.key));
      if (all) show(all.map((stroke) => stroke.map(([x, y]) => [canvas.width / 2 + size * x, canvas.height / 2 + size * y])));
    }
  });
  wipe.addEventListener("click", () => show([]));
}
