// The two pictures, on canvases. Only the visible part is drawn, so long runs stay fluent.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let colours = null;
export function forgetColours() {
  colours = null;
}
function palette() {
  colours ??= Object.fromEntries(
    ["bg", "fg", "soft", "line", "box", "accent", "inside", "read", "wait", "dead", "arrow", "grant"].map((n) => [
      n,
      css(`--${n}`),
    ]),
  );
  return colours;
}

function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1,
    { clientWidth: w, clientHeight: h } = canvas;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, w, h);
  return [c, w, h];
}

const COLOUR = { waiting: "wait", inside: "inside", reading: "read", crashed: "dead", paused: "soft" };
export const isGrant = (words) => /^(PRIVILEGE|TOKEN|REPLY|SIGNAL)/i.test(words) && !/^REQ/i.test(words);
export const isToken = (words) => /^(PRIVILEGE|TOKEN)/i.test(words);

export function diagram(canvas, run, frame, span, moment, hit = []) {
  const [c, w, h] = prepare(canvas),
    p = palette(),
    left = 46,
    top = 14,
    bottom = 20;
  const now = moment ?? run.time(frame),
    t0 = Math.max(0, now - span * 0.6),
    t1 = t0 + span;
  const x = (t) => left + ((t - t0) / (t1 - t0)) * (w - left - 12);
  const step = (h - top - bottom) / Math.max(1, run.nodes - 1 || 1);
  const y = (node) => (run.nodes === 1 ? h / 2 : top + (node - 1) * step);
  c.font = "12px system-ui, sans-serif";
  c.textBaseline = "middle";
  const every = Math.ceil(13 / Math.max(step, 0.1));
  for (let node = 1; node <= run.nodes; node++) {
    c.strokeStyle = p.line;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(left, y(node));
    c.lineTo(w - 8, y(node));
    c.stroke();
    if ((node - 1) % every === 0) {
      c.fillStyle = p.soft;
      c.textAlign = "right";
      c.fillText(run.name(node).slice(0, 6), left - 8, y(node));
    }
  }
  const thick = Math.max(2, Math.min(9, step * 0.5));
  for (const s of run.spans) {
    if (s.t1 < t0 || s.t0 > t1) continue;
    const later = s.f0 > frame,
      end = later || s.f1 <= frame ? Math.min(s.t1, t1) : now;
    if (!later && s.f1 > frame && s.t1 > now)
      faint(c, () =>
        line(
          c,
          p[COLOUR[s.what]],
          Math.max(1.5, thick * 0.35),
          s.what === "waiting",
          x(now),
          x(Math.min(s.t1, t1)),
          y(s.node),
        ),
      );
    c.globalAlpha = later ? LATER : 1;
    c.strokeStyle = p[COLOUR[s.what]];
    c.lineWidth = s.what === "inside" || s.what === "reading" ? thick : Math.max(1.5, thick * 0.35);
    c.setLineDash(s.what === "waiting" ? [4, 3] : []);
    c.beginPath();
    c.moveTo(Math.max(left, x(s.t0)), y(s.node));
    c.lineTo(Math.max(left + 1, x(end)), y(s.node));
    c.stroke();
  }
  c.setLineDash([]);
  hit.length = 0;
  const seen = run.between(t0, t1),
    few = seen.length < 60 && step > 22,
    labels = [],
    crowded = Math.max(0.1, Math.min(1, 300 / seen.length));
  const every_th = Math.ceil(seen.length / MOST_ARROWS);
  for (let at = 0; at < seen.length; at++) {
    const m = seen[at];
    if (at % every_th && !isToken(m.words)) continue;
    const later = m.f0 > frame,
      done = m.f1 <= frame || later,
      t = done ? Math.min(m.t1, t1 * 2) : now;
    c.globalAlpha = (later ? LATER : 1) * (isToken(m.words) ? 1 : Math.max(crowded, later ? 0.3 : 0.1));
    if (later && m.t1 === Infinity) continue;
    const part = done || m.t1 === Infinity ? 1 : (now - m.t0) / (m.t1 - m.t0);
    const x0 = x(m.t0),
      y0 = y(m.from),
      x1 = x(t),
      y1 = y0 + (y(m.to) - y0) * (m.t1 === Infinity && !done ? Math.min(1, (now - m.t0) / (run.longest || 1)) : part);
    c.strokeStyle = m.lost && done ? p.dead : isToken(m.words) ? p.inside : isGrant(m.words) ? p.grant : p.arrow;
    c.lineWidth = isToken(m.words) ? 2 : 1;
    c.beginPath();
    c.moveTo(x0, y0);
    c.lineTo(x1, y1);
    c.stroke();
    if (!done) hit.push([x0, y0, x1, y1, m]);
    if (done && !m.lost) head(c, x0, y0, x1, y1);
    if (m.lost && done) {
      c.beginPath();
      c.moveTo(x1 - 4, y1 - 4);
      c.lineTo(x1 + 4, y1 + 4);
      c.moveTo(x1 + 4, y1 - 4);
      c.lineTo(x1 - 4, y1 + 4);
      c.stroke();
    }
    if (few && !later && x1 - x0 > 34) label(c, p.soft, m.words.slice(0, 18), x0, y0, x1, y1, labels);
  }
  c.globalAlpha = 1;
  c.strokeStyle = p.accent;
  c.lineWidth = 1;
  c.setLineDash([2, 3]);
  c.beginPath();
  c.moveTo(x(now), 4);
  c.lineTo(x(now), h - bottom + 6);
  c.stroke();
  c.setLineDash([]);
  c.fillStyle = p.soft;
  c.textAlign = "center";
  c.font = "11px system-ui, sans-serif";
  for (const t of ticks(t0, t1)) c.fillText(`${t}`, x(t), h - 7);
  return every_th;
}

const MOST_ARROWS = 3000; // of more than these every second, third, ... is drawn, and the page says so
const LATER = 0.22; // what has not happened yet is faint

function faint(c, act) {
  c.globalAlpha = LATER;
  act();
  c.globalAlpha = 1;
}

function line(c, colour, width, broken, x0, x1, y) {
  c.strokeStyle = colour;
  c.lineWidth = width;
  c.setLineDash(broken ? [4, 3] : []);
  c.beginPath();
  c.moveTo(x0, y);
  c.lineTo(x1, y);
  c.stroke();
}

// A message's name stands beside its arrow, at the first free place; without one it is left out.
function label(c, colour, words, x0, y0, x1, y1, taken) {
  c.font = "10.5px system-ui, sans-serif";
  const half = c.measureText(words).width / 2 + 2;
  for (const part of [0.35, 0.5, 0.2, 0.65, 0.8]) {
    const [x, y] = [x0 + (x1 - x0) * part, y0 + (y1 - y0) * part - 6];
    if (taken.some(([tx, ty, th]) => Math.abs(tx - x) < th + half && Math.abs(ty - y) < 11)) continue;
    taken.push([x, y, half]);
    c.fillStyle = colour;
    c.textAlign = "center";
    c.fillText(words, x, y);
    return;
  }
}

function head(c, x0, y0, x1, y1) {
  const a = Math.atan2(y1 - y0, x1 - x0);
  c.beginPath();
  c.moveTo(x1, y1);
  c.lineTo(x1 - 6 * Math.cos(a - 0.4), y1 - 6 * Math.sin(a - 0.4));
  c.moveTo(x1, y1);
  c.lineTo(x1 - 6 * Math.cos(a + 0.4), y1 - 6 * Math.sin(a + 0.4));
  c.stroke();
}

function ticks(t0, t1) {
  const raw = (t1 - t0) / 6,
    power = 10 ** Math.floor(Math.log10(raw)),
    unit = [1, 2, 5, 10].find((u) => u * power >= raw) * power;
  const found = [];
  for (let t = Math.ceil(t0 / unit) * unit; t <= t1; t += unit) found.push(+t.toFixed(6));
  return found;
}

export function network(canvas, run, frame, now, hits) {
  const [c, w, h] = prepare(canvas),
    p = palette(),
    r = Math.max(4, Math.min(16, 150 / run.nodes));
  const wide = (w / 2 - 30) * (run.about.edges?.length ? 1 : Math.min(1, h / w + 0.25)),
    tall = h / 2 - 24;
  const at = (node) => [w / 2 + wide * run.at(node)[0], h / 2 + tall * run.at(node)[1]];
  c.strokeStyle = p.line;
  c.lineWidth = 1;
  const edges = run.about.edges?.length ? run.about.edges : null;
  if (edges)
    for (const [a, b] of edges) {
      c.beginPath();
      c.moveTo(...at(a));
      c.lineTo(...at(b));
      c.stroke();
    }
  const doing = run.doing(frame);
  hits.messages.length = hits.nodes.length = 0;
  const flying = run.flight(frame),
    crowd = Math.max(0.05, Math.min(1, 60 / flying.length));
  const every = Math.ceil(flying.length / 1000);
  for (let i = 0; i < flying.length; i++) {
    const m = flying[i];
    if (i % every && !isToken(m.words)) continue;
    const [x0, y0] = at(m.from),
      [x1, y1] = at(m.to),
      way = m.t1 === Infinity ? 0.5 : Math.max(0, Math.min(1, (now - m.t0) / (m.t1 - m.t0 || 1))),
      off = Math.min(0.4, (r + 8) / (Math.hypot(x1 - x0, y1 - y0) || 1)), // beside the nodes, not under them
      part = off + way * (1 - 2 * off);
    const x = x0 + (x1 - x0) * part,
      y = y0 + (y1 - y0) * part;
    c.globalAlpha = crowd;
    c.strokeStyle = p.line;
    c.beginPath();
    c.moveTo(x0, y0);
    c.lineTo(x1, y1);
    c.stroke();
    c.globalAlpha = isToken(m.words) ? 1 : Math.max(0.35, crowd);
    c.fillStyle = isToken(m.words) ? p.inside : isGrant(m.words) ? p.grant : p.arrow;
    c.beginPath();
    c.arc(x, y, isToken(m.words) ? 6 : 4.5, 0, 7);
    c.fill();
    hits.messages.push([x, y, m]);
  }
  c.globalAlpha = 1;
  c.textAlign = "center";
  c.textBaseline = "middle";
  c.font = "12px system-ui, sans-serif";
  for (let node = 1; node <= run.nodes; node++) {
    const [x, y] = at(node),
      span = doing.get(node);
    hits.nodes.push([x, y, node]);
    c.beginPath();
    c.arc(x, y, r, 0, 7);
    c.fillStyle = span?.what === "inside" ? p.inside : span?.what === "reading" ? p.read : p.box;
    c.fill();
    c.strokeStyle = span ? p[COLOUR[span.what]] : p.soft;
    c.lineWidth = span ? 2.5 : 1;
    c.stroke();
    if (r > 7) {
      c.fillStyle = span?.what === "inside" ? "#111" : p.fg;
      c.fillText(run.name(node).slice(0, 4), x, y + 0.5);
    }
  }
}
