// The same spider in Node.js, with nothing but what comes with it: the protocol is JSON over a socket.

import net from "node:net"
import { createInterface } from "node:readline"
import { setTimeout as pause } from "node:timers/promises"

const PORT = Number(process.env.GATEWAY_PORT ?? 11300)
const SITE = process.env.SITE ?? "http://127.0.0.1:8081"
const NAME = `node ${process.pid}`
const LONGEST_URL = 200 // the longest unique key

// A client of the JSON protocol: `ask` sends a message and promises its reply.
async function connect() {
  const socket = net.connect({ port: PORT, host: "127.0.0.1" })
  const waiting = new Map()
  let lastId = 0
  createInterface({ input: socket, crlfDelay: 0 }).on("line", (line) => {
    const reply = JSON.parse(line)
    waiting.get(reply.id)?.resolve(reply)
    waiting.delete(reply.id)
  })
  const closed = new Promise((resolve) => socket.on("error", () => {}).on("close", resolve)).then(() => {
    for (const call of waiting.values()) call.reject(new Error("the connection to the gateway has ended"))
  })
  await Promise.race([new Promise((resolve) => socket.on("connect", resolve)), closed])
  return function ask(cmd, members) {
    const id = ++lastId
    return new Promise((resolve, reject) => {
      if (socket.destroyed) return reject(new Error("there is no connection to the gateway"))
      waiting.set(id, { resolve, reject })
      socket.write(JSON.stringify({ cmd, id, ...members }))
    })
  }
}

// Put a page into the queue, unless it was ever there.
async function addPage(ask, url) {
  const reply = await ask("add_job", { job: { url }, queue: "pages", unique: url, unique_for: "forever" })
  if (reply.error) throw new Error(reply.error)
}

// Fetch a page; its links become jobs before it is done, so that none is lost when this process dies.
async function visit(ask, { job_id, job: { url } }) {
  let answer
  try {
    answer = await fetch(url)
  } catch (error) {
    return ask("fail", { job_id, reason: String(error) })
  }
  const page = await answer.text()
  if (!answer.ok) {
    const isForGood = answer.status < 500
    return ask("fail", { job_id, reason: `${answer.status} ${answer.statusText}`, retry: isForGood ? false : null })
  }
  const links = new Set([...page.matchAll(/<a href="([^"]*)"/g)].map(([, link]) => new URL(link, url).href.split("#")[0]))
  const inside = [...links].filter((link) => link.startsWith(`${SITE}/`) && link.length <= LONGEST_URL).sort()
  for (const link of inside) await addPage(ask, link)
  await ask("notify", { job_id, result: { url, links: inside.length, by: NAME } })
  console.log(`${NAME} has read ${url}: ${inside.length} links`)
}

// Visit pages as long as the gateway is there; every spider begins with the same one.
async function crawl() {
  const ask = await connect()
  await addPage(ask, `${SITE}/`)
  for (;;) {
    const reply = await ask("get_job", { queue: "pages", wait: 30 })
    if (reply.job) await visit(ask, reply)
    else if (reply.code !== "no_work") throw new Error(reply.error)
  }
}

for (;;) {
  try {
    await crawl()
  } catch (error) {
    console.log(`${NAME}: ${error.message}`)
    await pause(1000)
  }
}
