// How a chart looks, in both colour schemes.

const LIGHT = ["#1f5fc4", "#b8570a", "#17713a", "#8a3fa8", "#a3264a", "#0b7a85"];
const DARK = ["#7fb0ff", "#ffb366", "#7ddc9b", "#d59bf0", "#ff9db5", "#6fd6e0"];
const CONFIG = { displayModeBar: false, staticPlot: false, scrollZoom: false };

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function series(number, trace) {
  const colours = isDark() ? DARK : LIGHT;
  const colour = colours[number % colours.length];
  const coloured = trace.type === "bar" ? { marker: { color: colour } } : { type: "scatter", line: { color: colour, width: 2 } };
  return { ...coloured, ...trace };
}

// Plotly itself only looks when the window changes, and not when a scroll bar comes.
export const keepFitting = (where) => new ResizeObserver(() => {
  if (where.clientWidth && where.querySelector(".main-svg")) window.Plotly.Plots.resize(where);
}).observe(where);

export function draw(where, traces, layout, says) {
  const axis = { gridcolor: style("--line"), zerolinecolor: style("--line"), linecolor: style("--line"), automargin: true, fixedrange: true };
  const narrow = where.clientWidth < 420;
  const time = layout.xaxis ? {} : { tickformat: narrow ? "%H:%M" : "%H:%M:%S", hoverformat: "%H:%M:%S", nticks: narrow ? 5 : Math.floor(where.clientWidth / 95), tickangle: 0 };
  where.setAttribute("aria-label", `${says}. The values are in the table below.`);
  window.Plotly.react(where, traces, {
    margin: { l: 44, r: 12, t: 8, b: 30 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: style("--text"), size: 12, family: "system-ui, sans-serif" },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    showlegend: traces.length > 1,
    hovermode: "closest",
    bargap: 0.25,
    ...layout,
    xaxis: { ...axis, ...time, ...layout.xaxis },
    yaxis: { ...axis, rangemode: "tozero", tickformat: "~s", ...layout.yaxis },
  }, CONFIG);
}
