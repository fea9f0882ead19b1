// The cards of the page: what each needs, its chart, its numbers as text, and what it says when empty.

import { draw, keepFitting, series } from "./charts.js";
import { big, bytes, clock, count, duration, element, plain, cut, rate, table } from "./text.js";

const sum = (rows, name) => rows.reduce((all, row) => all + (row[name] ?? 0), 0);
const value = (name, text) => element("b", { "data-value": name }, text);
const quiet = (...children) => element("p", { class: "quiet values" }, ...children);
const pill = (state) => element("span", { class: "pill", "data-state": state }, state);

const noMessages = () => ["No messages yet. Try ", element("code", {}, "make demo"), " in another terminal."];

function noSpark(store) {
  const spark = store.gateway.spark;
  if (spark.reason) return [spark.reason + "."];
  if (spark.state === "running" || store.gateway.queries.length) return ["Spark has found nothing yet."];
  return ["Spark is not running: set ", element("code", {}, "spark.enabled: true"), " in the configuration, or start it with ",
    element("code", {}, "python -m spark run"), "."];
}

const needsSpark = (store, rows) =>
  rows.length ? null : store.gateway.spark.state === "running" && !store.gateway.newest ? noMessages() : noSpark(store);

export class Card {
  constructor(about, where) {
    this.about = about;
    this.choice = null;
    this.onchoice = () => {};
    this.tools = element("div", { class: "quiet" });
    this.values = element("div");
    this.chart = element("div", { class: "chart", role: "img", "aria-label": about.title, hidden: "" });
    keepFitting(this.chart);
    this.body = element("div");
    const id = `card-${about.id}`;
    const attributes = { class: `card ${about.class ?? ""}`, id, "aria-labelledby": `${id}-title` };
    if (about.job) attributes["data-job"] = about.job;
    const head = element("div", { class: "head" }, element("h2", { id: `${id}-title` }, about.title), this.tools);
    this.section = element("section", attributes, head, this.values, this.chart, this.body);
    where.append(this.section);
  }

  draw(store) {
    const view = this.about.view(store, this);
    this.section.toggleAttribute("data-empty", Boolean(view.empty));
    this.values.replaceChildren(...(view.values ? [view.values] : []));
    if (view.empty) {
      this.chart.replaceChildren();
      this.chart.hidden = true;
      this.body.replaceChildren(element("p", { class: "empty" }, ...view.empty));
      return;
    }
    const drawn = Boolean(view.traces && store.charts && window.Plotly);
    this.chart.hidden = !drawn;
    if (drawn) draw(this.chart, view.traces, view.layout, view.says ?? this.about.title);
    this.fill(view, drawn);
  }

  fill(view, drawn) {
    if (!view.table) return;
    if (!view.traces || !drawn) {
      this.keepScroll(view.table);
      return;
    }
    let details = this.body.querySelector("details");
    if (!details) {
      details = element("details", {}, element("summary", {}, "Values as a table"), element("div"));
      this.body.replaceChildren(details);
    }
    details.lastChild.replaceChildren(view.table);
  }

  keepScroll(made) {
    const before = this.body.querySelector(".scroll");
    const top = before?.scrollTop ?? 0;
    const focused = before !== null && before === document.activeElement;
    this.body.replaceChildren(made);
    made.scrollTop = top;
    if (focused) made.focus({ preventScroll: true });
  }

  // A choice among names; the first is the default until somebody chooses.
  choose(names, label) {
    if (!names.includes(this.choice)) this.choice = names[0];
    const known = this.tools.querySelector("select");
    if (known && known.dataset.names === JSON.stringify(names)) return this.choice;
    const select = element("select", { "aria-label": label, "data-names": JSON.stringify(names) });
    for (const name of names) select.append(element("option", {}, name));
    select.value = this.choice;
    select.onchange = () => { this.choice = select.value; this.onchoice(); };
    this.tools.replaceChildren(select);
    return this.choice;
  }
}

function rates(store, card) {
  const rows = store.rows("rates");
  if (!rows.length) return liveRates(store, card);
  card.tools.replaceChildren("found by Spark, windows of 5 s");
  const per = new Map(); // protocol -> window -> messages accepted
  for (const row of rows) {
    const windows = per.get(row.protocol) ?? new Map();
    windows.set(row.window_start, (windows.get(row.window_start) ?? 0) + (row.accepted ?? 0));
    per.set(row.protocol, windows);
  }
  const times = [...new Set(rows.map((row) => row.window_start))].sort((a, b) => a - b);
  const names = [...per.keys()].sort();
  const values = quiet(value("accepted", count(sum(rows, "accepted"))), " in, ",
    value("delivered", count(sum(rows, "delivered"))), " out, ", value("bytes", bytes(sum(rows, "bytes"))),
    ` since ${clock(times[0])}`);
  return {
    values,
    traces: names.map((name, number) => series(number, {
      name: plain(name), x: times.map((time) => new Date(time * 1000)),
      y: times.map((time) => (per.get(name).get(time) ?? 0) / 5), stackgroup: "one", mode: "lines",
    })),
    layout: { yaxis: { title: { text: "messages/s", standoff: 12 } } },
    says: `Messages per second by protocol: ${names.join(", ")}`,
    table: table([["window", (time) => clock(time)], ...names.map((name) => [
      name, (time) => rate((per.get(name).get(time) ?? 0) / 5), true])], [...times].reverse().slice(0, 60), "messages per second"),
  };
}

function liveRates(store, card) {
  const names = [...new Set(store.history.flatMap((each) => Object.keys(each.rates)))].sort();
  if (!names.some((name) => store.history.some((each) => each.rates[name]?.accepted))) return { empty: noMessages() };
  card.tools.replaceChildren("counted by the gateway; Spark has not answered yet");
  const of = (each, name) => each.rates[name]?.accepted ?? 0;
  return {
    traces: names.map((name, number) => series(number, {
      name: plain(name), x: store.history.map((each) => new Date(each.time * 1000)),
      y: store.history.map((each) => of(each, name)), stackgroup: "one", mode: "lines",
    })),
    layout: { yaxis: { title: { text: "messages/s", standoff: 12 } } },
    table: table([["time", (each) => clock(each.time)], ...names.map((name) => [name, (each) => rate(of(each, name)), true])],
      [...store.history].reverse().slice(0, 60), "messages per second"),
  };
}

function latency(store, card) {
  const rows = store.rows("latency");
  const empty = needsSpark(store, rows);
  if (empty) return { empty };
  const weight = new Map();
  const label = (row) => `${row.protocol}, until ${row.until}`;
  for (const row of rows) weight.set(label(row), (weight.get(label(row)) ?? 0) + (row.count ?? 0));
  const chosen = card.choose([...weight.keys()].sort((a, b) => weight.get(b) - weight.get(a)), "Latency of");
  const shown = rows.filter((row) => label(row) === chosen).sort((a, b) => a.window_start - b.window_start);
  const last = shown.at(-1);
  const percentiles = ["p50", "p95", "p99"];
  return {
    values: quiet("last window: ", ...percentiles.flatMap((name) => [`${name} `, value(name, duration(last[name])), "  "]),
      "of ", value("count", count(last.count))),
    traces: percentiles.map((name, number) => series(number, {
      name, x: shown.map((row) => new Date(row.window_start * 1000)), y: shown.map((row) => row[name] == null ? null : row[name] * 1000),
      mode: shown.length < 3 ? "lines+markers" : "lines",
    })),
    layout: { yaxis: { title: { text: "ms", standoff: 12 }, rangemode: "tozero" } },
    says: `Latency of ${chosen}`,
    table: table([["window", (row) => clock(row.window_start)], ...percentiles.map((name) => [name, (row) => duration(row[name]), true]),
      ["messages", (row) => count(row.count), true]], [...shown].reverse().slice(0, 60), "latency"),
  };
}

function sizes(store) {
  const rows = store.rows("sizes").sort((a, b) => a.bucket - b.bucket);
  const empty = needsSpark(store, rows);
  if (empty) return { empty };
  const upTo = (row) => `≤ ${bytes(row.bucket)}`;
  return {
    values: quiet(value("messages", count(sum(rows, "messages"))), " messages"),
    traces: [series(0, { type: "bar", x: rows.map(upTo), y: rows.map((row) => row.messages) })],
    layout: { yaxis: { title: { text: "messages", standoff: 12 } }, xaxis: { type: "category", tickfont: { size: 11 } }, showlegend: false },
    table: table([["size", upTo], ["messages", (row) => count(row.messages), true]], rows, "messages by size"),
  };
}

const top = (what) => (store) => {
  const rows = store.rows("top").filter((row) => row.what === what).sort((a, b) => b.messages - a.messages);
  const empty = needsSpark(store, rows);
  if (empty) return { empty };
  const shown = rows.slice(0, 10).reverse();
  return {
    values: quiet(value(`${what}s`, count(rows.length)), ` shown, the first `, value(`first-${what}`, cut(rows[0].name || "(no name)", 60)),
      " with ", value(`first-${what}-messages`, count(rows[0].messages))),
    traces: [series(what === "sender" ? 0 : 1, {
      type: "bar", orientation: "h", y: shown.map((_, number) => number), x: shown.map((row) => row.messages),
      hovertext: shown.map((row) => plain(row.name)), hoverinfo: "x+text",
    })],
    layout: { showlegend: false, xaxis: { title: { text: "messages" } }, yaxis: { tickvals: shown.map((_, number) => number),
      ticktext: shown.map((row) => plain(cut(row.name || "(no name)", 22))), automargin: true } },
    table: table([[what, (row) => row.name || "(no name)"], ["messages", (row) => count(row.messages), true],
      ["bytes", (row) => bytes(row.bytes), true]], rows, `top ${what}s`),
  };
};

function refusals(store) {
  const found = store.rows("refusals").sort((a, b) => b.count - a.count);
  const counted = store.gateway.counts.filter((each) => ["refused", "dropped", "expired"].includes(each.what))
    .map((each) => ({ event: each.what, protocol: each.labels[0], reason: each.labels[1], count: each.count }));
  const rows = found.length ? found : counted;
  if (!rows.length) return { empty: ["Nothing was refused, dropped or expired."] };
  return {
    values: quiet(value("count", count(sum(rows, "count"))), found.length ? " in the log" : " since the start"),
    table: table([["event", (row) => row.event], ["protocol", (row) => row.protocol], ["reason", (row) => row.reason],
      ["count", (row) => count(row.count), true]], rows, "refusals and drops by reason"),
  };
}

function depths(store) {
  const rows = store.gateway.deepest;
  if (!rows.length) return { empty: ["Nothing waits: every message has been handed out."] };
  const bar = (row) => {
    const made = element("span", { class: "bar" });
    made.style.width = `${Math.max(1, (100 * row.depth) / rows[0].depth)}%`;
    return made;
  };
  return {
    values: quiet(value("waiting", count(store.gateway.waiting)), " wait in ", value("addresses", count(store.gateway.addresses)), " addresses"),
    table: table([["address", (row) => row.address], ["", bar], ["waiting", (row) => big(row.depth), true],
      ["handed out", (row) => big(row.outstanding), true], ["readers", (row) => count(row.consumers), true]], rows, "the deepest addresses"),
  };
}

function sessions(store) {
  const rows = store.rows("sessions").sort((a, b) => b.started - a.started);
  const empty = needsSpark(store, rows);
  if (empty) return { empty };
  const open = rows.filter((row) => row.ended == null);
  const lost = rows.filter((row) => row.state === "lost");
  const ended = rows.length - open.length - lost.length;
  const lasted = (row) => (row.ended == null ? pill("open") : row.state === "lost" ? pill("lost") : duration(row.seconds));
  return {
    values: quiet(value("open", count(open.length)), " open, ", value("ended", count(ended)), " ended",
      ...(lost.length ? [", ", value("lost", count(lost.length)), " lost: nobody saw their end"] : [])),
    table: table([["client", (row) => row.client], ["protocol", (row) => row.protocol], ["user", (row) => row.user || "–"],
      ["started", (row) => clock(row.started)], ["lasted", lasted, true]],
    rows.slice(0, 100), "sessions"),
  };
}

function queries(store) {
  const rows = store.gateway.queries;
  const spark = store.gateway.spark;
  if (!rows.length) return { empty: noSpark(store) };
  return {
    values: spark.reason ? quiet(spark.reason) : null,
    table: table([["query", (row) => element("span", { "data-query": row.job }, row.job)], ["state", (row) => pill(row.state)],
      ["rows/s", (row) => rate(row.rows_per_second), true], ["batch", (row) => count(row.batch), true],
      ["batch time", (row) => duration(row.batch_seconds), true], ["behind", (row) => count(row.lag), true],
      ["heard", (row) => `${duration(Math.floor(row.age))} ago`, true], ["last error", (row) => row.error ?? ""]], rows, "Spark's queries"),
  };
}

export const CARDS = [
  { id: "rates", job: "rates", title: "Messages per second, by protocol", class: "wide", needs: ["rates", "gateway"], view: rates },
  { id: "latency", job: "latency", title: "Latency", needs: ["latency"], view: latency },
  { id: "sizes", job: "sizes", title: "Message sizes", needs: ["sizes"], view: sizes },
  { id: "senders", job: "top", title: "Top senders", needs: ["top"], view: top("sender") },
  { id: "addresses", title: "Top addresses", needs: ["top"], view: top("address") },
  { id: "depths", title: "Where messages wait", needs: ["gateway"], view: depths },
  { id: "refusals", job: "refusals", title: "Refused, dropped, expired", needs: ["refusals", "gateway"], view: refusals },
  { id: "sessions", job: "sessions", title: "Sessions", needs: ["sessions"], view: sessions },
  { id: "queries", title: "Spark's queries", needs: ["gateway"], view: queries },
];
