// Calls of this server. The token lives here, in memory, and nowhere else.

let token = "";

export const setToken = (text) => { token = text; };

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

// What a call answers; also when there is no answer.
export const call = async (method, path) => {
  try {
    const response = await fetch(path, { method, headers: headers(), cache: "no-store" });
    const body = await response.json().catch(() => null);
    return { ok: response.ok, status: response.status, body };
  } catch (error) {
    return { ok: false, status: 0, body: { detail: `no answer: ${error.message}` } };
  }
};

// Why a call failed, in words.
export const reason = ({ status, body }) => (body && body.detail ? body.detail : `status ${status}`);

const RETRY_MS = [1000, 2000, 5000, 10000];
// A stream that has been silent for this long is dead: there is an event every second.
const SILENT_MS = 8000;

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

const event = (text) => {
  const fields = { event: "message", data: "" };
  for (const line of text.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  return fields;
};

// Reads one stream to its end. EventSource cannot send the token, so this reads the body itself.
const read = async (response, onEvent, alive) => {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const { event: name, data } = event(part);
      onEvent(name, JSON.parse(data));
    }
  }
};

// Follows the stream until `signal` ends it, and begins again when it breaks. `onState` is told "open", "refused" (with the status;
// then it is over) or "broken" (with the reason).
export const follow = async (onEvent, onState, signal) => {
  let failures = 0;
  while (!signal.aborted) {
    const stream = new AbortController();
    const stop = () => stream.abort();
    signal.addEventListener("abort", stop, { once: true });
    let timer = setTimeout(stop, SILENT_MS);
    const alive = () => { clearTimeout(timer); timer = setTimeout(stop, SILENT_MS); };
    let why = "the stream ended";
    try {
      const response = await fetch("/admin/v1/live", { headers: headers(), cache: "no-store", signal: stream.signal });
      if (response.status === 401 || response.status === 403) {
        onState("refused", response.status);
        return;
      }
      if (response.ok) {
        failures = 0;
        onState("open");
        await read(response, onEvent, alive);
      } else {
        why = response.status === 503 ? "too many watch this instance" : `status ${response.status}`;
      }
    } catch (error) {
      why = error.name === "AbortError" ? "no news" : "the server cannot be reached";
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
    }
    if (signal.aborted) return;
    onState("broken", why);
    await pause(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)], signal);
    failures += 1;
  }
};
