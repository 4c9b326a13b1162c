"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("view"), pen = canvas.getContext("2d");
const read = document.getElementById("read"), runs = document.getElementById("runs");
const view = { turn: -0.7, tilt: 0.5, zoom: 1 };
const shown = data.names.map((_, r) => r < 2);
const meshed = data.names.map((_, r) => r % 2 === 1);  // as in the paper: surface, then mesh

data.names.forEach((name, r) => {
  const label = document.createElement("label"), box = document.createElement("input");
  const swatch = document.createElement("span"), text = document.createElement("span");
  box.type = "checkbox";
  box.checked = shown[r];
  box.addEventListener("change", () => { shown[r] = box.checked; draw(); });
  swatch.className = "swatch";
  swatch.style.background = data.colors[r];
  text.textContent = name + (meshed[r] ? " (mesh)" : " (surface)");
  label.append(box, swatch, text);
  runs.append(label);
});

function range() {  // of the losses that are shown
  let low = Infinity, high = -Infinity;
  data.loss.forEach((grid, r) => {
    if (!shown[r]) return;
    for (const row of grid) for (const v of row) {
      if (v === null) continue;
      low = Math.min(low, v);
      high = Math.max(high, v);
    }
  });
  return low < high ? [low, high] : Number.isFinite(low) ? [low, low + 1] : [0, 1];
}

function project(a, b, c) {  // all in [-1, 1]: place on the canvas, and how near it is
  const right = a * Math.cos(view.turn) - b * Math.sin(view.turn);
  const away = a * Math.sin(view.turn) + b * Math.cos(view.turn);
  const up = 0.75 * c * Math.cos(view.tilt) + away * Math.sin(view.tilt);
  const near = 0.75 * c * Math.sin(view.tilt) - away * Math.cos(view.tilt);
  const scale = 200 * view.zoom;
  return [canvas.width / 2 + scale * right, canvas.height / 2 - scale * up, near];
}

function unit(values, k) {
  const low = values[0], high = values[values.length - 1];
  return 2 * (values[k] - low) / (high - low) - 1;
}

function shade(color, t) {  // brighter upwards
  const part = k => parseInt(color.slice(k, k + 2), 16);
  const mix = p => Math.round(p * (0.55 + 0.45 * t) + 70 * t * (1 - p / 255));
  return `rgba(${mix(part(1))}, ${mix(part(3))}, ${mix(part(5))}, 0.85)`;
}

let places = [];  // what the pointer can find: [canvas x, canvas y, nearness, run, i, j]

function draw() {
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const [low, high] = range(), height = v => 2 * (v - low) / (high - low) - 1;
  frame(low, high);
  places = [];
  const faces = [];
  data.loss.forEach((grid, r) => {
    if (!shown[r]) return;
    const points = grid.map((row, i) => row.map((v, j) => {
      if (v === null) return null;
      const p = project(unit(data.x, i), unit(data.y, j), height(v));
      places.push([...p, r, i, j]);
      return p;
    }));
    for (let i = 0; i + 1 < data.x.length; i++) for (let j = 0; j + 1 < data.y.length; j++) {
      const corners = [points[i][j], points[i + 1][j], points[i + 1][j + 1], points[i][j + 1]];
      if (corners.includes(null)) continue;
      const mean = (grid[i][j] + grid[i + 1][j] + grid[i + 1][j + 1] + grid[i][j + 1]) / 4;
      faces.push({ corners, r, t: (mean - low) / (high - low), near: corners.reduce((s, p) => s + p[2], 0) });
    }
  });
  faces.sort((p, q) => p.near - q.near);  // the far ones first
  for (const face of faces) {
    pen.beginPath();
    face.corners.forEach((p, k) => k ? pen.lineTo(p[0], p[1]) : pen.moveTo(p[0], p[1]));
    pen.closePath();
    const color = data.colors[face.r];
    if (!meshed[face.r]) {
      pen.fillStyle = shade(color, Math.max(0, Math.min(1, face.t)));
      pen.fill();
    }
    pen.strokeStyle = meshed[face.r] ? color : "rgba(0, 0, 0, 0.12)";
    pen.lineWidth = meshed[face.r] ? 1 : 0.5;
    pen.stroke();
  }
}

function frame(low, high) {
  pen.strokeStyle = "#bbb";
  pen.fillStyle = "#555";
  pen.font = "13px system-ui, sans-serif";
  pen.lineWidth = 1;
  const line = (p, q) => { pen.beginPath(); pen.moveTo(p[0], p[1]); pen.lineTo(q[0], q[1]); pen.stroke(); };
  const corner = [[-1, -1], [1, -1], [1, 1], [-1, 1]];
  corner.forEach((c, k) => {
    line(project(...c, -1), project(...corner[(k + 1) % 4], -1));
    line(project(...c, -1), project(...c, 1));
  });
  const write = (text, p) => pen.fillText(text, p[0] + 4, p[1]);
  write(low.toPrecision(4), project(-1, -1, -1));
  write(high.toPrecision(4), project(-1, -1, 1));
  write("first direction", project(0, -1.15, -1));
  write("second direction", project(1.15, 0, -1));
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) * canvas.width / box.width,
          (event.clientY - box.top) * canvas.height / box.height];
}

let dragged = null;
canvas.addEventListener("pointerdown", event => { dragged = place(event); canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointerup", () => { dragged = null; });
canvas.addEventListener("pointercancel", () => { dragged = null; });
canvas.addEventListener("pointermove", event => {
  const [px, py] = place(event);
  if (dragged) {
    rotate((px - dragged[0]) * 0.01, (py - dragged[1]) * 0.01);
    dragged = [px, py];
    return;
  }
  let best = null, least = 14 * 14;
  for (const p of places) {
    const distance = (p[0] - px) ** 2 + (p[1] - py) ** 2;
    if (distance < least) { least = distance; best = p; }
  }
  read.textContent = best === null ? "" :
    `${data.names[best[3]]}: loss ${data.loss[best[3]][best[4]][best[5]].toPrecision(5)} at ` +
    `(${data.x[best[4]].toPrecision(3)}, ${data.y[best[5]].toPrecision(3)})`;
});
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  view.zoom = Math.max(0.3, Math.min(4, view.zoom * Math.exp(-event.deltaY * 0.001)));
  draw();
}, { passive: false });
canvas.addEventListener("keydown", event => {
  const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
  if (!step) return;
  event.preventDefault();
  rotate(...step);
});

function rotate(turn, tilt) {
  view.turn += turn;
  view.tilt = Math.max(-1.5, Math.min(1.5, view.tilt + tilt));
  draw();
}
draw();
