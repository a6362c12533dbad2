// Logging in, following the stream, and handing each snapshot to those who show it.
import { follow, setToken } from "./api.js";
import { lookAtTarget, showProgress, startActions } from "./actions.js";
import { showHistory, showPoint, startCharts } from "./charts.js";
import { byId, write } from "./dom.js";
import { showSlices } from "./slices.js";
import { show } from "./view.js";

let stream = null;
let tried = false;

const onEvent = (name, data) => {
  if (name === "history") {
    showHistory(data);
  } else if (name === "snapshot") {
    showPoint(data);
    showSlices(data);
    show(data, lookAtTarget);
    showProgress(data);
  }
};

const askForToken = (status) => {
  byId("board").hidden = true;
  byId("leave").hidden = true;
  byId("login").hidden = false;
  write(byId("link"), "Not logged in");
  if (tried) {
    write(byId("refused"), status === 403 ? "This key opens no admin calls: it must be the admin token." : "This token is wrong.");
  }
  byId("token").value = "";
  byId("token").focus();
};

const onState = (state, detail) => {
  if (state === "refused") {
    askForToken(detail);
  } else if (state === "broken") {
    write(byId("link"), `Connection lost (${detail}); what is shown is old. Trying again…`);
    byId("link").className = "bad";
  } else {
    const first = byId("board").hidden;
    byId("login").hidden = true;
    byId("board").hidden = false;
    byId("leave").hidden = !tried;
    write(byId("refused"), "");
    write(byId("link"), "Live");
    byId("link").className = "good";
    if (first && tried) byId("board").focus();
  }
};

const connect = () => {
  if (stream) stream.abort();
  stream = new AbortController();
  follow(onEvent, onState, stream.signal);
};

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  tried = true;
  setToken(byId("token").value.trim());
  connect();
});

byId("leave").addEventListener("click", () => {
  setToken("");
  // What was seen is forgotten too.
  location.reload();
});

startCharts();
startActions();
// Where no token is set, as in `thumbd dev`, none is needed.
connect();
