// Follows the gateway's events and draws what changed, at most twice a second.

import { CARDS, Card } from "./cards.js";
import { Store } from "./store.js";
import { big, count, duration, rate } from "./text.js";

const DRAW = 500; // milliseconds between two drawings
const RETRY = 3000; // milliseconds until a gateway that refused us is asked again
const SILENT = 5000; // milliseconds; the gateway speaks each second

const store = new Store();
const cards = CARDS.map((about) => new Card(about, document.getElementById("cards")));
const dirty = new Set();
const show = (id, text) => { document.getElementById(id).textContent = text; };
let heard = Date.now();
let timer = null;
let drawn = 0;

// At once, unless it was drawn just now.
function changed(...jobs) {
  for (const job of jobs) dirty.add(job);
  timer ??= setTimeout(() => { timer = null; drawn = Date.now(); requestAnimationFrame(draw); }, Math.max(0, drawn + DRAW - Date.now()));
}

function draw() {
  if (!store.gateway) return;
  const jobs = new Set(dirty);
  dirty.clear();
  for (const card of cards) {
    if (jobs.has("all") || card.about.needs.some((job) => jobs.has(job))) card.draw(store);
  }
}

function tiles() {
  const now = store.gateway;
  const sum = (values) => Object.values(values).reduce((all, value) => all + value, 0);
  const total = (name) => sum(Object.values(now.rates).map((rates) => rates[name]));
  show("rate", rate(total("accepted")));
  show("rate-delivered", rate(total("delivered")));
  show("connections", count(sum(now.connections)));
  const by = Object.entries(now.connections).filter(([, number]) => number);
  show("connections-by", by.map(([name, number]) => `${name} ${number}`).join(", ") || "nobody is connected");
  show("waiting", big(now.waiting));
  show("outstanding", big(now.outstanding));
  show("newest", big(now.newest));
  show("accepted", big(sum(Object.values(now.totals).map((kinds) => kinds.accepted ?? 0))));
  const lost = now.counts.filter((each) => ["refused", "dropped", "expired"].includes(each.what));
  show("refused", big(sum(lost.map((each) => each.count))));
  show("uptime", duration(Math.floor(now.uptime)));
  spark(now);
  if (now.failing) state("failing", "cannot write", `New messages are refused: ${now.failing}`);
  else state("running", "running");
}

function spark(now) {
  const running = now.queries.filter((query) => query.state === "running").length;
  const word = now.queries.length ? `${running} of ${now.queries.length}` : now.spark.state;
  show("spark", word);
  const about = { off: "not started by this gateway", missing: "cannot run here", running: "starting",
    waiting: "ended, is started again" }[now.spark.state];
  const process = now.spark.state === "running" || now.spark.state === "off" ? "" : `; ${about}`;
  show("spark-about", now.queries.length ? `queries run${process}` : about);
}

function state(name, text, sentence = "") {
  const pill = document.getElementById("state");
  if (pill.dataset.state !== name) {
    pill.dataset.state = name;
    pill.textContent = text;
  }
  const banner = document.getElementById("banner");
  if (banner.textContent !== sentence) banner.textContent = sentence;
  banner.hidden = !sentence;
}

function lost() {
  const since = new Date(heard).toLocaleTimeString("en-GB");
  state("lost", "connection lost", `The gateway does not answer since ${since}. What you see is older; trying again.`);
}

function loadPlotly() {
  if (window.Plotly || document.getElementById("plotly")) return;
  const script = document.createElement("script");
  script.id = "plotly";
  script.src = "/static/plotly.min.js";
  script.onload = () => changed("all");
  script.onerror = noCharts;
  document.head.append(script);
}

function noCharts() {
  store.charts = false;
  document.getElementById("no-charts").hidden = false;
  changed("all");
}

function follow() {
  const source = new EventSource("/api/events");
  const on = (name, act) => source.addEventListener(name, (event) => {
    heard = Date.now();
    act(JSON.parse(event.data));
  });
  on("state", (whole) => {
    store.state(whole);
    if (store.charts) loadPlotly();
    else noCharts();
    tiles();
    changed("all");
  });
  on("gateway", (now) => { store.live(now); tiles(); changed("gateway"); });
  on("result", (change) => { store.result(change); changed(change.job); });
  on("query", (query) => { store.query(query); changed("gateway"); });
  source.onerror = () => {
    lost();
    // A browser tries again by itself, but not after an answer such as "too many browsers".
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, RETRY);
  };
}

setInterval(() => { if (Date.now() - heard > SILENT) lost(); }, 1000);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed("all"));
for (const card of cards) card.onchoice = () => changed("all");
follow();
