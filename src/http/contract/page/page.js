// The page at /docs: a form for each operation of /openapi.json, and what the server answers.
"use strict";

const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

const resolve = (api, schema) =>
  schema && schema.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema;

// An example of a body: what is fixed, else something short that fits.
const example = (api, schema) => {
  schema = resolve(api, schema) || {};
  if (schema.enum) return schema.enum[0];
  if (schema.type === "array") return [example(api, schema.items)];
  if (schema.properties) {
    const fields = Object.entries(schema.properties);
    return Object.fromEntries(fields.map(([name, field]) =>
      [name, { user: "u1", kind: "blog", id: "42" }[name] ?? example(api, field)]));
  }
  return schema.type === "integer" ? 1 : "";
};

const control = (parameter) => {
  const schema = parameter.schema || {};
  const required = parameter.required === true;
  if (schema.enum) {
    const options = ["", ...schema.enum].map((value) => make("option", { value, textContent: value }));
    return make("select", { required }, ...options);
  }
  const input = make("input", { required, type: schema.type === "integer" ? "number" : "text", spellcheck: false });
  if (schema.minimum !== undefined) input.min = schema.minimum;
  if (schema.maximum !== undefined) input.max = schema.maximum;
  if (schema.maxLength !== undefined) input.maxLength = schema.maxLength;
  if (schema.default !== undefined) input.placeholder = schema.default;
  return input;
};

const show = async (output, begun, response) => {
  const text = await response.text();
  const took = Math.round(performance.now() - begun);
  let body = text;
  if (/json/.test(response.headers.get("content-type") || "")) {
    try { body = JSON.stringify(JSON.parse(text), null, 2); } catch { /* shown as it came */ }
  }
  const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  output.className = response.ok || response.status === 304 ? "" : "bad";
  output.textContent = `${response.status} ${response.statusText} in ${took} ms\n${headers}\n\n${body}`;
};

const send = async (path, method, fields, body, output) => {
  let url = path;
  const query = new URLSearchParams();
  const headers = new Headers();
  const key = document.getElementById("key").value.trim();
  if (key) headers.set("Authorization", `Bearer ${key}`);
  for (const [parameter, input] of fields) {
    const value = input.value;
    if (value === "") continue;
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, () => encodeURIComponent(value));
    else if (parameter.in === "query") query.set(parameter.name, value);
    else headers.set(parameter.name, value);
  }
  if (query.size) url += `?${query}`;
  const request = { method: method.toUpperCase(), headers, cache: "no-store" };
  if (body) {
    headers.set("Content-Type", "application/json");
    request.body = body.value;
  }
  output.hidden = false;
  output.className = "";
  output.textContent = "…";
  const begun = performance.now();
  try {
    await show(output, begun, await fetch(url, request));
  } catch (error) {
    output.className = "bad";
    output.textContent = String(error);
  }
};

const section = (api, path, method, operation) => {
  const form = make("form");
  const fields = (operation.parameters || []).map((parameter) => {
    const input = control(parameter);
    const name = `${parameter.name}${parameter.required ? "" : " (optional)"}`;
    form.append(make("label", { title: parameter.description || "" }, `${name}: ${parameter.description || ""}`, input));
    return [parameter, input];
  });
  let body = null;
  const content = operation.requestBody && operation.requestBody.content["application/json"];
  if (content) {
    const value = JSON.stringify(example(api, content.schema), null, 2);
    body = make("textarea", { value, rows: 9, spellcheck: false });
    form.append(make("label", {}, "Body", body));
  }
  const output = make("pre", { hidden: true, tabIndex: 0 });
  output.setAttribute("aria-live", "polite");
  form.append(make("button", { type: "submit", textContent: "Send" }), output);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(path, method, fields, body, output);
  });
  const answers = make("dl");
  for (const [status, response] of Object.entries(operation.responses)) {
    answers.append(make("dt", { textContent: status }), make("dd", { textContent: response.description }));
  }
  form.append(make("details", {}, make("summary", { textContent: "Answers" }), answers));
  const title = make("summary", {},
    make("b", { textContent: method.toUpperCase() }), make("code", { textContent: path }), ` ${operation.summary || ""}`);
  return make("details", { id: operation.operationId }, title, form);
};

const start = async () => {
  const calls = document.getElementById("calls");
  try {
    const api = await (await fetch("/openapi.json")).json();
    document.getElementById("version").textContent = api.info.version;
    const groups = new Map();
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        const tag = (operation.tags || ["other"])[0];
        if (!groups.has(tag)) groups.set(tag, []);
        groups.get(tag).push(section(api, path, method, operation));
      }
    }
    calls.replaceChildren(...[...groups].flatMap(([tag, sections]) => [make("h2", { textContent: tag }), ...sections]));
  } catch (error) {
    calls.replaceChildren(make("p", { className: "bad", textContent: `openapi.json cannot be read: ${error}` }));
  }
};

start();
