// The thread in which this browser decodes, so that the page stays smooth: a piece of work in, its records out.

import { load } from "../engine/decode.js"
import { Tokenizer } from "../engine/tokenizer.js"
import { comparison, promptOf } from "./browser_comparison.js"

onmessage = async ({ data: work }) => {
  try {
    postMessage({ t: "loading" })
    const [config, tokenizer, weights, wasm] = await Promise.all([fetched(work.config, "json"), fetched(work.tokenizer, "json"),
      fetched(work.weights, "arrayBuffer"), fetched(work.wasm, "arrayBuffer")])
    const positions = promptOf(work, new Tokenizer(tokenizer)).length + work.spec.new_tokens
    const engine = load({ config, tokenizer, weights, sha256: work.sha256 }, { wasm, positions, caches: work.modes.length })
    for (const record of comparison(engine, work, environment(engine.kernels))) postMessage(record)
    postMessage({ t: "over" })
  } catch (error) {
    postMessage({ t: "failed", message: error.message })
  }
}

async function fetched(url, as) {
  const answer = await fetch(url)
  if (!answer.ok) throw new Error(`the server did not give ${new URL(url, location.href).pathname.split("/").at(-1)} (${answer.status})`)
  return answer[as]()
}

// What the browser tells of itself. It has no torch, transformers or Python.
function environment(kernels) {
  const { userAgent, hardwareConcurrency, platform } = navigator
  const found = userAgent.match(/(edg|firefox|chrome)\/(\d+)/i) ?? userAgent.match(/(version)\/(\d+)/i)
  const title = { edg: "Edge", firefox: "Firefox", chrome: "Chrome", version: "Safari" }[found?.[1].toLowerCase()]
  return { device: "browser", device_name: found ? `${title} ${found[2]}` : "a browser", threads: 1, cores: hardwareConcurrency ?? 0, platform, dtype: "float32",
           attn_implementation: kernels === "wasm" ? "WebAssembly with SIMD" : "plain JavaScript", torch: "none", transformers: "none", python: "none" }
}
