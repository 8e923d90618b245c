// Runs what the browser runs in node: `node engine.mjs ENGINE`, a job as JSON on the standard input, its findings as JSON out.

import { readFileSync, writeFileSync } from "node:fs"

const ENGINE = process.argv[2]
const { decode, load } = await import(`${ENGINE}/decode.js`)
const { shapeOf } = await import(`${ENGINE}/model.js`)
const { chooser } = await import(`${ENGINE}/sampling.js`)
const { textStream } = await import(`${ENGINE}/tokenizer.js`)
const { sha256 } = await import(`${ENGINE}/weights.js`)
const { bestKernels } = await import(`${ENGINE}/kernels.js`)
const { comparison } = await import(`${ENGINE}/../live/browser_comparison.js`)
const { BrowserRun } = await import(`${ENGINE}/../live/browser_run.js`)
const wasm = readFileSync(`${ENGINE}/kernels.wasm`)
const job = JSON.parse(readFileSync(0, "utf8"))

function filesOf(folder) {
  const json = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"))
  const { buffer, byteOffset, byteLength } = readFileSync(`${folder}/model.safetensors`)
  const weights = buffer.slice(byteOffset, byteOffset + byteLength)
  return { config: json("config.json"), tokenizer: json("tokenizer.json"), weights, sha256: sha256(weights) }
}

const said = (work) => {
  try {
    work()
    return ""
  } catch (error) {
    return error.message
  }
}

// A clock that moves by a tenth of a millisecond each time that it is read, and tells whole ones.
function coarse() {
  let reads = 0
  return () => Math.floor(reads++ / 10)
}

// What a browser takes with SIMD, without it (which can't read the module), and without WebAssembly.
function chosen() {
  const { WebAssembly: known } = globalThis
  const found = [bestKernels(wasm), bestKernels(new Uint8Array([0]))]
  globalThis.WebAssembly = undefined
  found.push(bestKernels(wasm))
  globalThis.WebAssembly = known
  return found
}

// The records of a run, as the page marks them, whose page is hidden in the middle of its second pass.
function marked() {
  const listeners = new Set()
  globalThis.document = { hidden: false, addEventListener: (_, listen) => listeners.add(listen), removeEventListener: (_, listen) => listeners.delete(listen) }
  globalThis.Worker = class { postMessage() {} terminate() { this.ended = true } }
  const told = []
  const run = new BrowserRun("", { id: "x" }, () => {}, (answer) => told.push(answer))
  for (const hides of [false, true, false]) {
    run.take({ t: "pass" })
    document.hidden = hides
    for (const listen of listeners) listen()
    document.hidden = false
    run.take({ t: "clocked", clean: null })
  }
  run.take({ t: "over" })
  return { told, left: listeners.size, ended: run.worker.ended }
}

const found = {}
for (const [name, { folder, prompts, texts, new_tokens: newTokens, sampling, logits: file, work }] of Object.entries(job.models)) {
  const files = filesOf(folder)
  const ready = (kernels) => load(files, { wasm, kernels, positions: 512, caches: 2 })
  const { model, tokenizer, kernels } = ready()
  const { model: plain } = ready("plain")
  const ids = prompts.map((prompt) => (typeof prompt === "string" ? tokenizer.encode(prompt) : prompt))
  const run = (prompt, mode, on = model, choose = chooser(), each = () => {}) => {
    const before = on.heap.live
    const tokens = []
    for (const step of decode(on, prompt, { mode, newTokens, choose })) {
      tokens.push(step.id)
      each(step)
    }
    if (on.heap.live !== before) throw new Error(`${mode} leaves ${on.heap.live - before} bytes behind`)
    return tokens
  }
  const logits = []
  const greedy = ids.map((prompt) => run(prompt, "cached", model, chooser(), (step) => logits.push(...step.logits)))
  writeFileSync(file, Float32Array.from(logits))
  const layers = (on) => {
    const rows = []
    on.heap.give(on.forward(ids[0], null, (_, x) => rows.push([...x])))
    return rows
  }
  const kept = (mode) => {
    const rows = []
    const before = model.heap.live
    run(ids[0], mode, model, chooser(), ({ cache, logits }) => rows.push([cache?.states() ?? [], model.heap.live - before - logits.byteLength]))
    return rows
  }
  const stream = textStream(tokenizer)
  found[name] = {
    kernels, ids, greedy, layers: { wasm: layers(model), plain: layers(plain) },
    modes: Object.fromEntries(["uncached", "unpassed", "concat", "prealloc"].map((mode) => [mode, ids.slice(0, 3).map((prompt) => run(prompt, mode))])),
    plain: run(ids[0], "cached", plain),
    sampled: (sampling ?? []).map((one) => run(ids[0], "prealloc", model, chooser(one))),
    cache: { cached: kept("cached"), prealloc: kept("prealloc"), uncached: kept("uncached"), unpassed: kept("unpassed") },
    texts: (texts ?? []).map((text) => tokenizer.encode(text)),
    read: (texts ?? []).map((text) => tokenizer.encode(text).map((id) => tokenizer.decode([id]))),
    streamed: tokenizer.encode((texts ?? []).join(" ")).map(stream).join(""),
    tampered: said(() => load({ ...files, sha256: sha256(new Uint8Array([1]).buffer) }, { wasm, positions: 8 })),
    records: work ? [...comparison({ model, tokenizer, kernels }, work, job.environment, coarse())] : [],
    long: said(() => load(files, { wasm, positions: 10 ** 6 })),
  }
}
const refused = (job.refused ?? []).map((config) => said(() => shapeOf(config)))
const sums = (job.hashed ?? []).map((text) => sha256(new TextEncoder().encode(text).buffer))
process.stdout.write(JSON.stringify({ models: found, refused, sums, marked: marked(), chosen: chosen() }))
