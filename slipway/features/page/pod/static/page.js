"use strict";

const POLL = 2000; // Milliseconds between two questions which version answers.
const WHILE_DRAWING = 350; // Milliseconds between two predictions of a drawing that is not finished.
const STEPS = 28; // Steps of the keyboard's pen along a side.
const PEN = 1 / 9; // Width of the pen on the paper, as a share of the side.
const PEN_SENT = 1 / 7; // And of what is sent, as a share of the drawing: between two and three pixels of a digit that has 20.
const THINNEST = 1 / 40; // Of the side, for what is hardly more than a dot.
const SENT = 280; // Pixels of a side of the drawing that is sent, a byte for each.
const PATIENCE = 800; // Milliseconds for which an answer to something else stays, where the next one is late.
const BARS = 12; // Labels that are all shown in their order; of more, the likeliest ten first.

const byId = (id) => document.getElementById(id);
const paper = byId("paper");
const pen = paper.getContext("2d");

let status = null; // What the page's server said last.
let strokes = []; // Each a list of points from 0 to 1.
let stroke = null; // The one that is being drawn.
let shown = null; // A test image in the place of the drawing: { bitmap, number }.
let cursor = { x: 0.5, y: 0.5, down: false, visible: false };
let asking = null; // The request on its way.
let askAgain = false;
let outstanding = false; // What is on the paper has no answer yet.
let lastAsked = 0;
let timer = 0;
let current = 0; // Counts what was on the paper, so that no answer comes to something else.
let answered = -1; // What was on it when the answer was given that is shown.

// The paper.

function ink(context, side, colour, width) {
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = side * width;
  context.lineCap = context.lineJoin = "round";
  for (const points of stroke ? [...strokes, stroke] : strokes) {
    context.beginPath();
    if (points.length === 1) {
      context.arc(points[0].x * side, points[0].y * side, (side * width) / 2, 0, 2 * Math.PI);
      context.fill();
      continue;
    }
    context.moveTo(points[0].x * side, points[0].y * side);
    for (let i = 1; i < points.length - 1; i++) {
      const [a, b] = [points[i], points[i + 1]];
      context.quadraticCurveTo(a.x * side, a.y * side, ((a.x + b.x) / 2) * side, ((a.y + b.y) / 2) * side);
    }
    const last = points[points.length - 1];
    context.lineTo(last.x * side, last.y * side);
    context.stroke();
  }
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw() {
  const side = Math.max(1, Math.round(paper.clientWidth * window.devicePixelRatio));
  if (paper.width !== side || paper.height !== side) paper.width = paper.height = side;
  pen.clearRect(0, 0, side, side);
  if (shown) {
    const { bitmap } = shown;
    const scale = Math.min(side / bitmap.width, side / bitmap.height);
    pen.imageSmoothingEnabled = scale < 4;
    const [width, height] = [bitmap.width * scale, bitmap.height * scale];
    pen.drawImage(bitmap, (side - width) / 2, (side - height) / 2, width, height);
  } else {
    pen.fillStyle = colour("--grid");
    for (let x = 1; x < 14; x++) {
      for (let y = 1; y < 14; y++) pen.fillRect((x * side) / 14 - 1, (y * side) / 14 - 1, 2, 2);
    }
    ink(pen, side, colour("--text"), PEN);
  }
  if (cursor.visible) {
    pen.beginPath();
    pen.lineWidth = side / 110;
    pen.strokeStyle = colour("--accent");
    pen.arc(cursor.x * side, cursor.y * side, side * PEN * 0.75, 0, 2 * Math.PI);
    pen.stroke();
    if (cursor.down) {
      pen.fillStyle = colour("--accent");
      pen.beginPath();
      pen.arc(cursor.x * side, cursor.y * side, side * PEN * 0.3, 0, 2 * Math.PI);
      pen.fill();
    }
  }
  byId("hint").hidden = Boolean(shown || stroke || strokes.length || cursor.visible);
}

function empty() {
  return !shown && !stroke && !strokes.length;
}

function changed(finished) {
  current++;
  draw();
  if (empty()) return forget();
  ask(finished);
}

function forget() {
  outstanding = askAgain = false;
  clearTimeout(timer);
  if (asking) asking.abort();
  unanswered("Draw something, or take a test image.");
}

// No answer stands beside an image that it was not given for.
function unanswered(why) {
  answered = -1;
  byId("answer").textContent = "?";
  byId("answer").className = "answer empty";
  byId("sure").textContent = why;
  byId("truth").hidden = byId("seen-figure").hidden = true;
  for (const id of ["fact-serving", "fact-round"]) byId(id).textContent = "–";
  bars(null);
}

function startDrawing() {
  if (shown) {
    shown = null;
    strokes = [];
  }
  problem("");
}

function clearPaper() {
  shown = stroke = null;
  strokes = [];
  cursor.down = false;
  problem("");
  changed(true);
  say("Cleared.");
}

function undo() {
  if (shown) return clearPaper();
  stroke = null;
  cursor.down = false;
  strokes.pop();
  changed(true);
  say(strokes.length ? "Last line undone." : "The paper is empty.");
}

function point(event) {
  const box = paper.getBoundingClientRect();
  const within = (value) => Math.min(Math.max(value, 0), 1);
  return { x: within((event.clientX - box.left) / box.width), y: within((event.clientY - box.top) / box.height) };
}

paper.addEventListener("pointerdown", (event) => {
  if (event.button !== 0 || (stroke && !event.isPrimary)) return;
  paper.setPointerCapture(event.pointerId);
  cursor.visible = cursor.down = false;
  startDrawing();
  stroke = [point(event)];
  changed(false);
});

paper.addEventListener("pointermove", (event) => {
  if (!stroke || cursor.down || !event.isPrimary) return;
  for (const each of event.getCoalescedEvents ? event.getCoalescedEvents() : [event]) stroke.push(point(each));
  changed(false);
});

for (const kind of ["pointerup", "pointercancel"]) {
  paper.addEventListener(kind, () => {
    if (cursor.down) return;
    endStroke();
  });
}

function endStroke() {
  if (!stroke) return;
  strokes.push(stroke);
  stroke = null;
  changed(true);
}

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

paper.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in MOVES) move(...MOVES[event.key], event.shiftKey ? 5 : 1);
  else if (event.key === " ") togglePen();
  else if (event.key === "Backspace") undo();
  else if (event.key === "Escape") clearPaper();
  else return;
  event.preventDefault();
});

function place() {
  return `column ${Math.round(cursor.x * STEPS)}, row ${Math.round(cursor.y * STEPS)}`;
}

function move(dx, dy, steps) {
  const within = (value) => Math.min(Math.max(value, 1 / STEPS), 1 - 1 / STEPS);
  cursor.visible = true;
  cursor.x = within(cursor.x + (dx * steps) / STEPS);
  cursor.y = within(cursor.y + (dy * steps) / STEPS);
  if (cursor.down && stroke) {
    stroke.push({ x: cursor.x, y: cursor.y });
    changed(false);
  } else draw();
  say(place(), 400);
}

function togglePen() {
  cursor.visible = true;
  cursor.down = !cursor.down;
  if (cursor.down) {
    startDrawing();
    stroke = [{ x: cursor.x, y: cursor.y }];
    changed(false);
  } else endStroke();
  draw();
  say(`Pen ${cursor.down ? "down" : "up"}, ${place()}.`);
}

paper.addEventListener("blur", () => {
  if (cursor.down) {
    cursor.down = false;
    endStroke();
  }
  cursor.visible = false;
  draw();
});

paper.addEventListener("focus", () => {
  if (paper.matches(":focus-visible")) {
    cursor.visible = true;
    draw();
  }
});

// Asking.

function ask(finished) {
  outstanding = true;
  clearTimeout(timer);
  if (asking) {
    askAgain = true;
    return;
  }
  const wait = finished ? 0 : Math.max(0, lastAsked + WHILE_DRAWING - Date.now());
  timer = setTimeout(send, wait);
}

// Scaled up to the model's size, a small drawing by the paper's pen would be a blot.
function penSent() {
  const points = (stroke ? [...strokes, stroke] : strokes).flat();
  const extent = (axis) => points.reduce((most, each) => Math.max(most, each[axis]), 0) - points.reduce((least, each) => Math.min(least, each[axis]), 1);
  return Math.max(THINNEST, PEN_SENT * Math.max(extent("x"), extent("y")));
}

function drawing() {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SENT;
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, SENT, SENT);
  ink(context, SENT, "#000", penSent());
  return context.getImageData(0, 0, SENT, SENT).data.filter((_, place) => place % 4 === 0);
}

async function send() {
  if (empty() || asking) return;
  asking = new AbortController();
  askAgain = false;
  lastAsked = Date.now();
  const asked = current;
  const finished = !stroke;
  const late = setTimeout(() => unanswered("Asks the model …"), PATIENCE);
  let again = 0;
  try {
    const body = shown ? null : drawing();
    const begin = performance.now();
    const response = await fetch(`api/predict${shown ? `?sample=${shown.number}` : ""}`, {
      method: "POST",
      body,
      headers: { "content-type": "application/octet-stream" },
      signal: AbortSignal.any ? AbortSignal.any([asking.signal, AbortSignal.timeout(30000)]) : asking.signal,
    });
    const answer = await response.json();
    if (response.ok) {
      if (asked === current || (!shown && stroke)) {
        answered = asked;
        problem("");
        show(answer, performance.now() - begin, finished && asked === current);
      }
    } else if (response.status === 429) {
      again = 1000 * Number(response.headers.get("retry-after") || 1);
    } else if (response.status === 503) {
      look();
      again = 3000;
    } else if (asked === current) {
      refused(answer.error);
    }
  } catch (error) {
    if (error.name !== "AbortError") {
      look();
      again = 3000;
    }
  }
  asking = null;
  clearTimeout(late);
  if (again && answered !== current) unanswered("No answer yet. The page goes on asking.");
  if (askAgain) ask(!stroke);
  else if (again && outstanding) timer = setTimeout(send, again);
}

function refused(reason) {
  outstanding = false;
  unanswered("The model has no answer to this.");
  problem(reason);
}

function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(100 * share).toFixed(1)} %`;
}

function show(answer, milliseconds, finished) {
  outstanding = askAgain;
  if (status && status.state !== "ready") look();
  const name = answer.labels[answer.best];
  const share = answer.probabilities[answer.best];
  const big = byId("answer");
  big.textContent = name;
  big.className = name.length > 3 ? "answer long" : "answer";
  const sure = byId("sure");
  const strong = document.createElement("strong");
  strong.textContent = percent(share);
  sure.replaceChildren(share > 0.9 ? "Quite sure: " : share > 0.6 ? "Rather sure: " : "Not sure: ", strong);
  const truth = byId("truth");
  truth.hidden = answer.truth === null;
  let known = "";
  if (answer.truth !== null) {
    const right = answer.truth === answer.best;
    known = right ? `Right: it is ${answer.labels[answer.truth]}` : `Wrong: it is ${answer.labels[answer.truth]}`;
    truth.className = right ? "truth right" : "truth wrong";
    truth.textContent = `${right ? "✓" : "✗"} ${known}`;
  }
  bars(answer);
  seen(answer.seen);
  byId("fact-version").textContent = String(answer.version);
  byId("fact-serving").textContent = `${answer.milliseconds.toFixed(1)} ms`;
  byId("fact-round").textContent = `${milliseconds.toFixed(1)} ms`;
  if (finished) say(`${name}, ${percent(share)}. ${known && `${known}. `}Version ${answer.version}.`, 250);
}

async function seen(image) {
  const bytes = Uint8Array.from(atob(image.png), (each) => each.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = byId("seen");
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  byId("seen-figure").hidden = false;
}

function bar(label, share, classes) {
  const row = document.createElement("li");
  row.className = classes;
  const [name, track, fill, number] = ["name", "track", "fill", "share"].map((each) => {
    const span = document.createElement("span");
    span.className = each;
    return span;
  });
  name.textContent = name.title = label;
  track.setAttribute("aria-hidden", "true");
  track.append(fill);
  number.textContent = share === null ? "" : percent(share);
  row.append(name, track, number);
  fill.style.transform = `scaleX(${share || 0})`;
  return row;
}

function bars(answer) {
  const labels = answer ? answer.labels : status ? status.labels : [];
  const shares = answer ? answer.probabilities : labels.map(() => null);
  const order = labels.map((_, place) => place);
  const many = labels.length > BARS;
  if (many && answer) order.sort((a, b) => shares[b] - shares[a]);
  const rows = order.map((place) => {
    const classes = answer ? [place === answer.best && "best", place === answer.truth && "is-truth"] : [];
    return bar(labels[place], shares[place], classes.filter(Boolean).join(" "));
  });
  const named = labels.some((label) => label.length > 3);
  const top = byId("bars");
  top.classList.toggle("named", named);
  const before = top.children;
  if (!many && before.length === rows.length) {
    // The same rows go on, so that the bars move from where they are.
    rows.forEach((row, place) => {
      before[place].className = row.className;
      before[place].children[1].firstChild.style.transform = row.children[1].firstChild.style.transform;
      before[place].children[2].textContent = row.children[2].textContent;
      before[place].children[0].textContent = before[place].children[0].title = row.children[0].textContent;
    });
  } else top.replaceChildren(...rows.slice(0, many ? 10 : rows.length));
  byId("rest").hidden = !many;
  byId("rest-title").textContent = `The other ${labels.length - 10} labels`;
  byId("rest-bars").classList.toggle("named", named);
  byId("rest-bars").replaceChildren(...(many ? rows.slice(10) : []));
}

// Test images.

byId("clear").addEventListener("click", clearPaper);
byId("undo").addEventListener("click", undo);

byId("random").addEventListener("click", async () => {
  const before = shown ? `?not=${shown.number}` : "";
  try {
    const response = await fetch(`api/sample${before}`);
    const found = await response.json();
    if (!response.ok) {
      problem(found.error);
      return;
    }
    const bytes = Uint8Array.from(atob(found.png), (each) => each.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    stroke = null;
    strokes = [];
    cursor.down = false;
    shown = { bitmap, number: found.sample };
    problem("");
    changed(true);
  } catch {
    look();
  }
});

// What the server says of itself.

const STATES = { waiting: "no model yet", away: "model server away", unusable: "model cannot be used" };

async function look() {
  let found;
  try {
    const response = await fetch("api/status", { signal: AbortSignal.timeout(5000) });
    if (response.status === 429) return;
    if (!response.ok) throw new Error(response.statusText);
    found = await response.json();
  } catch {
    found = { ...(status || { labels: [], samples: 0 }), state: "away", reason: "This page's server cannot be reached. Trying again." };
  }
  take(found);
}

function take(found) {
  const before = status;
  status = found;
  const chip = byId("served");
  const text = found.state === "ready" ? `${found.model} · version ${found.version}` : STATES[found.state] || found.state;
  if (byId("served-text").textContent !== text) byId("served-text").textContent = text;
  chip.dataset.state = found.state;
  byId("random").hidden = !found.samples;
  banner(found.state === "ready" ? "" : found.reason);
  const known = before && before.labels.join("\n");
  if (known !== found.labels.join("\n")) bars(null);
  if (found.state === "ready" && !outstanding && byId("fact-version").textContent === "–") {
    byId("fact-version").textContent = String(found.version);
  }
  if (found.state !== "ready") return;
  const last = Number(chip.dataset.version || 0);
  chip.dataset.version = found.version;
  if (last && last !== found.version) {
    chip.classList.remove("new");
    void chip.offsetWidth;
    chip.classList.add("new");
    say(`Version ${found.version} answers from now on.`);
    byId("fact-version").textContent = String(found.version);
  }
  if (!empty() && ((last && last !== found.version) || (outstanding && !asking))) ask(true);
}

let bannerProblem = "";
let bannerState = "";

function banner(text) {
  bannerState = text;
  showBanner();
}

function problem(text) {
  bannerProblem = text;
  showBanner();
}

function showBanner() {
  const text = bannerProblem || bannerState;
  const place = byId("banner");
  if (place.textContent !== text) place.textContent = text;
  place.classList.toggle("bad", Boolean(bannerProblem));
  place.hidden = !text;
}

let speaking = 0;

function say(text, wait = 0) {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    const line = document.createElement("p");
    line.textContent = text;
    byId("spoken").replaceChildren(line);
  }, wait);
}

async function watch() {
  if (!document.hidden) await look();
  setTimeout(watch, POLL);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(draw).observe(paper);
forget();
draw();
watch();
