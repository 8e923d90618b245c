// What is going on, what is drawn and what comes, in plain sentences, with a bar of how far it is.

import { element, put } from "../shared/dom.js"
import { bytes, count, duration } from "../shared/format.js"
import { curve, deviceName, ended, median, named, passCounts, progress, watched } from "../shared/state.js"

export class StatusBar {
  constructor() {
    this.words = element("span", { "data-testid": "kv-status", role: "status" })
    this.next = element("span", { class: "kv-next" })
    this.left = element("span", { class: "kv-left" })
    this.fill = element("div", { class: "kv-fill" })
    this.bar = element("div", { class: "kv-bar", role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 }, this.fill)
    this.node = element("div", { class: "kv-statusbar" }, element("div", { class: "kv-line" }, element("span", {}, this.words, " ", this.next), this.left), this.bar)
  }

  // `status` is the server's word on the queue. `instead` replaces the sentence while the page shows a recording, and
  // `takes` says how long the form's run would take; `held`, that what is below is not of this run yet.
  draw(state, linked, status, instead, takes, held) {
    put(this.words, linked ? instead || SENTENCES[state.state](state, status) : "Connection lost: trying again")
    this.node.dataset.recording = String(Boolean(linked && instead))
    this.node.dataset.busy = String(Boolean(linked && !instead && isBusy(state)))
    put(this.next, (linked && !instead && (held ? "· in grey: what was here before" : NEXT[state.state]?.(state))) || "")
    this.words.title = passCounts(state)?.why ?? "" // why no more passes were timed
    const { share, left } = progress(state)
    const idle = instead || ended(state) || ["waiting", "gone"].includes(state.state)
    const measuredHere = !instead && ended(state) && state.environment
    put(this.left, measuredHere ? deviceName(state.environment) : idle ? takes : left === null || !state.steps ? "" : `about ${left < 90 ? `${Math.ceil(left)} s` : duration(left)} left`)
    const useless = share === null || ended(state) // an empty bar would say that nothing is done
    this.bar.style.visibility = useless ? "hidden" : ""
    this.fill.style.width = `${Math.round(100 * (share ?? 0))}%`
    this.bar.setAttribute("aria-valuenow", String(Math.round(100 * (share ?? 0))))
    this.node.dataset.state = state.state
  }
}

// The sentence of each state. `status` is the server's word on the queue while there is no record to send.
const SENTENCES = {
  waiting: (state, status) => (status?.worker && status.worker !== "ready" ? workerWords(status.worker) : "Nothing has run yet"),
  queued: (state, status) => (status?.worker === "ready" || status?.held ? status.words : workerWords(status?.worker)),
  gone: () => "This comparison is no longer here",
  loading: ({ download }) => (download && download.bytes < download.of
    ? `Downloading the weights: ${bytes(download.bytes)} of ${bytes(download.of)}` : "Loading the model"),
  started: (state) => `${about(state)}about to begin`,
  looking: (state) => `${about(state)}stage 1 of 3, a first look: one pass of each mode, token ${state.steps} of ${state.spec.new_tokens}.`,
  proof: (state) => `${about(state)}stage 2 of 3, not timed: ${proofWords(state)}`,
  memory: (state) => `${about(state)}stage 2 of 3, not timed: how much memory does each mode take?`,
  measuring: (state) => `${about(state)}stage 3 of 3: ${passWords(state)}.`,
  failed: (state) => `Could not be done: ${state.message}`,
  stopped: (state) => {
    if (state.message) return `${about(state)}stopped: ${state.message}`
    return state.model ? `${about(state)}stopped; what was measured stands` : "Stopped before it began"
  },
  done: (state) => about(state) + (watched(state) ? "watched from outside: one run, as it was"
    : `done${isBusy(state) ? ", on a busy machine" : ""}: ${passesWords(state)}`),
}

// What is drawn meanwhile, and what comes.
const NEXT = {
  looking: () => "Each step is drawn as it is timed.",
  proof: () => "The timed passes come next.",
  memory: () => "The timed passes come next.",
  measuring: () => "The curves are their median so far.",
}

// Whether the check is over and the prediction, for which the device's paces are measured once, has not come.
const unpaced = (state) => state.proofSteps === state.spec.new_tokens && state.environment.device !== "browser" && !state.modes.some((mode) => mode.predicted)

function proofWords(state) {
  if (unpaced(state)) return "how fast is this device, and how much memory does each mode take?"
  return state.modes.length > 1 ? "do the modes choose the same tokens? The count is below." : `what does a step keep? Look at the cache below. Token ${state.proofSteps} of ${state.spec.new_tokens}.`
}

const about = ({ model, environment }) => (model
  ? `${[model.title, weightsWords(model), environment.device === "browser" ? `decoded by ${environment.device_name}` : ""].filter(Boolean).join(", ")} · ` : "")

function weightsWords(model) {
  return { random: "random weights (real shapes and times, the text is noise)", bundled: "",
           given: "a model of the user's own", local: "weights from a local folder", hub: "weights from the Hugging Face Hub" }[model.weights]
}

function workerWords(worker) {
  return { starting: "The measuring process is starting", restarting: "The measuring process ended; a new one is starting",
           down: "The measuring process can't be started; the server's log says why", off: "The measuring process is off" }[worker] ?? ""
}

function passWords(state) {
  const { mode, repeat } = state.running ?? {}
  const title = state.modes.find((m) => m.name === mode)?.title ?? ""
  if (repeat < 0) return `warm-up pass, ${title}`
  const of = state.spec.repeats
  return repeat < of ? `timed pass ${repeat + 1} of ${of}, ${title}` : `timed pass ${repeat + 1}, as the first ${of} were not enough, ${title}`
}

function passesWords(state) {
  const found = passCounts(state)
  const passes = found ? found.all / state.modes.length : state.spec.repeats
  const each = count(passes)
  if (found && !found.clean) return `all ${each} passes of each mode were disturbed (≈): run it again when the machine is quieter`
  if (!found || found.clean === found.all) return `${each} timed passes of each mode${addedWords(state, passes)}${apart(state)}`
  const disturbed = `${count(found.all - found.clean)} of ${count(found.all)} passes disturbed`
  if (state.modes.length > MOST) return disturbed
  // One line on a small window, so that the end of a run moves nothing.
  return `${disturbed}; quiet: ${state.figures.filter((run) => run.passes).map((run) => quietWords(named(state, run.mode).title, run.passes)).join(", ")}`
}

// Why a run has more passes than were planned, else its warm-up.
function addedWords({ spec }, passes) {
  return passes > spec.repeats ? `, as ${count(spec.repeats)} were not enough` : ` after ${count(spec.warmup)} warm-up`
}

// Whether other work disturbed at least half of the passes of a run that is over.
function isBusy(state) {
  const found = ended(state) ? passCounts(state) : null
  return Boolean(found) && found.clean <= found.all / 2
}

// How far apart the passes are at a step, where that is more than a reader expects of a quiet machine: the interval of a
// speed-up is of whole passes, which may agree although their steps do not.
function apart(state) {
  const spread = (mode) => median(curve(mode).slice(1).map(({ q1, mid, q3 }) => (q3 - q1) / mid))
  const most = Math.max(0, ...state.modes.filter((mode) => mode.times.length > 1).map(spread))
  return most > APART ? `; their quartiles lie ${Math.round(100 * most)}% apart at a typical step` : ""
}

const APART = 0.05 // of a step
const MOST = 2 // modes of which each is named

// How many passes of a mode its figures are made from.
function quietWords(title, { clean, disturbed }) {
  return `${title} ${clean} of ${clean + disturbed}${clean ? "" : " (so all count, ≈)"}`
}
