"use strict";
// Numbers, scales and paths of the diagrams on the project's pages, which have this file before their own script.

// Numbers ------------------------------------------------------------------------------------------------------------

function short(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  let text;
  if (size === 0) text = "0";
  else if (size >= 1e9) text = trim(value / 1e9) + " G";
  else if (size >= 1e6) text = trim(value / 1e6) + " M";
  else if (size >= 1e4) text = trim(value / 1e3) + " k";
  else if (size >= 1e-3) text = trim(value);
  else text = value.toExponential(1).replace(".0e", "e").replace("e-", "e−");
  return text.replace(/^-/, "−");
}

function trim(value) {
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4;
  return value.toFixed(digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

function clock(seconds) {
  const s = Math.round(seconds);
  const pad = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(s / 3600);
  const minutes = Math.floor(s / 60) % 60;
  return hours ? `${hours}:${pad(minutes)}:${pad(s % 60)}` : `${minutes}:${pad(s % 60)}`;
}

// Scales -------------------------------------------------------------------------------------------------------------

function ticks(low, high, count, steps = [1, 2, 2.5, 5, 10]) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * steps.find((s) => s * power >= rough * 0.999);
  const out = [];
  for (let i = Math.ceil(low / step - 1e-6); i * step <= high + step * 1e-6; i++) out.push(+(i * step).toPrecision(12));
  return out;
}

function timeTicks(low, high, count) {
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400].find(
    (s) => (high - low) / s <= count,
  );
  if (!step) return ticks(low, high, count);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high; v += step) out.push(v);
  return out;
}

function logTicks(low, high) {
  const out = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
    for (const m of high / low > 300 ? [1] : high / low > 5 ? [1, 3] : [1, 1.5, 2, 3, 5, 7]) {
      const v = +(m * 10 ** p).toPrecision(3);
      if (v >= low * 0.999 && v <= high * 1.001) out.push(v);
    }
  }
  return out.length ? out : [low];
}

// Drawing ------------------------------------------------------------------------------------------------------------

function draw(parent, name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

function path(xs, ys) {
  let out = "";
  let pen = "M";
  xs.forEach((x, i) => {
    if (x === null || ys[i] === null) pen = "M";
    else {
      out += `${pen}${x.toFixed(1)} ${ys[i].toFixed(1)}`;
      pen = "L";
    }
  });
  return out;
}
