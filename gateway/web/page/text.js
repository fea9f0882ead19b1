// Numbers, times and elements.  Names come from strangers: they only ever become text.

const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const some = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (value) => (value == null ? "–" : whole.format(value));
export const rate = (value) => (value == null ? "–" : value < 100 ? some.format(value) : whole.format(value));
export const big = (value) => (value == null ? "–" : value < 1e6 ? whole.format(value) : short.format(value));

export function bytes(value) {
  if (value == null) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024 || unit === "GiB") return `${some.format(value)} ${unit}`;
    value /= 1024;
  }
}

export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${some.format(seconds * 1e3)} ms`;
  if (seconds < 60) return `${some.format(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export const clock = (seconds) =>
  seconds == null ? "–" : new Date(seconds * 1000).toLocaleTimeString("en-GB");

// Plotly reads a little HTML in its labels; a name must not be read so.
export const plain = (text) =>
  String(text ?? "").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

export const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child != null));
  return made;
}

// columns: [title, of row -> text or node, is it a number]
export function table(columns, rows, caption) {
  const head = element("tr");
  for (const [title, , number] of columns) {
    head.append(element("th", { scope: "col", class: number ? "number" : "" }, title));
  }
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    for (const [, of, number] of columns) {
      line.append(element("td", { class: number ? "number" : "" }, of(row) ?? ""));
    }
    body.append(line);
  }
  const made = element("table", { "aria-label": caption }, element("thead", {}, head), body);
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made);
}
