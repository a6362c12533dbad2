// The two charts: likes a second and flush lag, five minutes, a point a second.
import uPlot from "./uplot.js";
import { byId, length, plural, rate, write } from "./dom.js";

const POINTS_MAX = 300;
const HEIGHT = 160;

const at = [], rates = [], lags = [];
let charts = [];

// A variable may hold light-dark(): only an element resolves it.
const resolved = (name) => {
  const probe = document.createElement("i");
  probe.className = name;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
};

const chart = (id, label, values, stroke, format) => {
  const place = byId(id);
  const text = getComputedStyle(document.body).color;
  const line = { stroke: text, grid: { stroke: "rgba(128, 128, 128, .25)", width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const options = {
    width: Math.max(place.clientWidth, 200),
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
    axes: [
      { ...line, space: 70, size: 28, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB")) },
      { ...line, size: 54, values: (_, ticks) => ticks.map(format) },
    ],
    series: [{}, { label, stroke, width: 2, fill: stroke.replace("rgb(", "rgba(").replace(")", ", .15)") }],
  };
  place.replaceChildren();
  return { place, values, plot: new uPlot(options, [at, values], place) };
};

const build = () => {
  for (const { plot } of charts) plot.destroy();
  charts = [
    chart("chart-rate", "a second", rates, resolved("good"), (value) => rate(value)),
    chart("chart-lag", "seconds", lags, resolved("warn"), (value) => `${rate(value)} s`),
  ];
};

const draw = () => {
  for (const { plot, values } of charts) plot.setData([at, values]);
};

const push = (point) => {
  const seconds = point.at_ms / 1000;
  if (at.length && seconds <= at[at.length - 1]) return;
  at.push(seconds);
  rates.push(point.per_second);
  lags.push(point.lag_ms / 1000);
  if (at.length > POINTS_MAX) for (const one of [at, rates, lags]) one.shift();
};

export const showHistory = ({ points }) => {
  for (const one of [at, rates, lags]) one.length = 0;
  points.forEach(push);
  if (!charts.length) build();
  draw();
};

export const showPoint = ({ point, entries }) => {
  write(byId("unflushed"), `${plural(entries, "operation waits", "operations wait")} in Redis for MySQL.`);
  if (!point) return;
  push(point);
  write(byId("rate"), rate(point.per_second));
  write(byId("lag"), point.lag_ms ? length(point.lag_ms) : "none");
  draw();
};

export const startCharts = () => {
  // Colours stand in the canvas, so another scheme needs another canvas.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (charts.length) build(); });
  new ResizeObserver(() => {
    for (const { place, plot } of charts) {
      const width = Math.max(place.clientWidth, 200);
      if (width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }).observe(byId("board"));
};
