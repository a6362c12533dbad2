// Making and changing elements, and writing numbers and times. Texts only ever go in as text.

export const byId = (id) => document.getElementById(id);

export const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
};

// Changes a text only if it is another one, so that what reads aloud keeps quiet.
export const write = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

// Puts children in only if what they show has changed: focus and selection stay where they are.
export const fill = (element, shown, children) => {
  const now = JSON.stringify(shown);
  if (element.shown === now) return false;
  element.shown = now;
  element.replaceChildren(...children());
  return true;
};

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const rate = (value) => tenths.format(value);
export const plural = (value, one, many) => `${count(value)} ${value === 1 ? one : many}`;

// A length of time, of which only the two largest units matter.
export const length = (ms) => {
  if (ms < 1000) return `${whole.format(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${tenths.format(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
};

const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const date = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export const time = (at) => clock.format(new Date(at));
export const moment = (at) => date.format(new Date(at));
