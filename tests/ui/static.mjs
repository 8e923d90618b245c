// Runs what the static edition runs, in node: `node static.mjs EDITION`, questions as JSON in, answers as JSON out.

import { readFileSync } from "node:fs"

const edition = process.argv[2]
const { memory, weightBytes } = await import(`${edition}/assets/static/calculator.js`)
const { ending } = await import(`${edition}/assets/static/figures.js`)
const { load } = await import(`${edition}/assets/engine/decode.js`)
const { comparison } = await import(`${edition}/assets/live/browser_comparison.js`)
const data = JSON.parse(readFileSync(`${edition}/data.json`, "utf8"))
const { asked, new_tokens: newTokens, environment } = JSON.parse(readFileSync(0, "utf8"))

const known = Object.fromEntries(data.models.map((model) => [model.id, model]))
const answers = asked.map(({ model, weights, ...question }) => ({ ...memory(known[model], question, data), weights_bytes: weightBytes(known[model].params, data.weight_bits[weights]) }))

// The order's files, as the browser's worker finds them beside itself.
const file = (path) => readFileSync(`${edition}/assets/live/${path.split("?")[0]}`)
const { buffer, byteOffset, byteLength } = file(data.order.weights)
const work = { ...data.order, spec: { ...data.order.spec, new_tokens: newTokens } }
const files = { config: JSON.parse(file(work.config)), tokenizer: JSON.parse(file(work.tokenizer)), weights: buffer.slice(byteOffset, byteOffset + byteLength), sha256: work.sha256 }
const engine = load(files, { wasm: file(work.wasm), positions: 64, caches: 2 })
let reads = 0
const uneven = () => reads++ ** 1.3 // a clock whose steps differ, so that each figure does
const records = [...comparison(engine, work, environment, uneven)]
const disturbed = records.map((record) => (record.t === "clocked" && record.mode === "cached" && record.repeat === 1 ? { ...record, clean: false } : record))
process.stdout.write(JSON.stringify({ answers, runs: [records, disturbed].map((of) => ({ records: of, ending: ending(of, data.student) })) }))
