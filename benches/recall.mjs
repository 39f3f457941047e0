/**
 * How much of what belongs to a question is found: `node benches/recall.mjs DATA [MODEL]`.
 *
 * DATA is `cherche/data/semanlink` of Python's package cherche 2.2.1 (MIT): what one person has noted on the web over years, with tags.
 * Two tasks: *tags of papers*, as the package has it (the title of a paper on arXiv asks for its tags, which are known by their names and those of broader
 * tags), and *notes of tags* (the name of a tag asks for what was noted under it; tags with 2 to 20 notes). MODEL is the directory of an embedding
 * model; without it words are measured alone. Recall and nDCG at 10, means over the questions. The addon has to be built.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createLocalEmbedder, createMemoryManager } from '../js/index.js'

const [data, model] = process.argv.slice(2)
const AT = 10
const NOTE_MAX = 4000
const read = (name) => JSON.parse(readFileSync(join(data, name), 'utf8'))
const [papers, tags, notes] = ['arxiv.json', 'tags.json', 'docs.json'].map(read)
const all = (given) => (Array.isArray(given) ? given : [given]).filter(Boolean)

/** Texts by name, and questions with the names that belong to them. */
function tagsOfPapers() {
  const used = new Set(papers.flatMap((paper) => paper.tag))
  const names = ({ prefLabel, altLabel, broader_prefLabel, broader_altLabel }) =>
    [prefLabel, altLabel, broader_prefLabel, broader_altLabel].flat().filter(Boolean).join(' ')
  const texts = new Map([...used].map((tag) => [tag, names(tags[tag])]))
  return { texts, questions: papers.map((paper) => [paper.arxiv_title, new Set(paper.tag)]) }
}

function notesOfTags() {
  const texts = new Map()
  const under = new Map()
  for (const note of notes) {
    const text = [...all(note.title), ...all(note.comment)].join(' ').slice(0, NOTE_MAX).trim()
    if (!text) continue
    texts.set(note.document, text)
    for (const tag of note.tag) under.set(tag, (under.get(tag) ?? new Set()).add(note.document))
  }
  const asked = [...under].filter(([tag, found]) => tags[tag]?.prefLabel?.length && found.size >= 2 && found.size <= 20)
  return { texts, questions: asked.map(([tag, found]) => [tags[tag].prefLabel.join(' '), found]) }
}

function gains(found, wanted) {
  const hits = found.slice(0, AT).map((name) => (wanted.has(name) ? 1 : 0))
  const gain = (rank) => 1 / Math.log2(rank + 2)
  const best = Array.from({ length: Math.min(AT, wanted.size) }, (_, rank) => gain(rank)).reduce((a, b) => a + b, 0)
  const got = hits.reduce((sum, hit, rank) => sum + hit * gain(rank), 0)
  return [hits.reduce((a, b) => a + b, 0) / wanted.size, got / best]
}

async function measured(task, { texts, questions }) {
  const embedder = model ? createLocalEmbedder(model) : { embed: () => Promise.reject(new Error('no model')) }
  const memory = createMemoryManager(
    embedder,
    { enabled: true, similarityThreshold: 0, maxResults: AT },
    { logger: { warn() {} } },
  )
  await memory.initialize()
  const entries = [...texts].map(([name, text]) => ({ text: text.trim() || name, metadata: { name } }))
  // What says the same has one entry, and all its names.
  const names = new Map()
  for (let from = 0; from < entries.length; from += 1000) {
    const batch = entries.slice(from, from + 1000)
    const ids = await memory.addBatch(batch)
    for (const [n, id] of ids.entries()) names.set(id, [...(names.get(id) ?? []), batch[n].metadata.name])
  }
  const vectors = model
    ? (await embedAll(embedder, [...texts.values()])).map((vector, n) => [[...texts.keys()][n], vector])
    : []
  const byName = (answers) => answers.flatMap(({ entry }) => names.get(entry.id))
  const ways = { 'BM25 alone': async (query) => byName(await memory.textSearch({ query })) }
  if (model) {
    ways['vectors alone'] = async (query) => {
      const [asked] = (await embedder.embed(query)).embeddings
      const near = vectors.map(([name, vector]) => [name, vector.reduce((sum, x, n) => sum + x * asked[n], 0)])
      near.sort((a, b) => b[1] - a[1])
      return near.slice(0, AT).map(([name]) => name)
    }
    ways['both, ours'] = async (query) => byName(await memory.search(query))
  }
  console.log(`${task}: ${texts.size} texts, ${questions.length} questions`)
  for (const [way, search] of Object.entries(ways)) {
    const sums = [0, 0]
    for (const [query, wanted] of questions) {
      const got = gains(await search(query), wanted)
      sums[0] += got[0]
      sums[1] += got[1]
    }
    const [recall, ndcg] = sums.map((sum) => (sum / questions.length).toFixed(3))
    console.log(`  ${way}: recall@${AT} ${recall}, nDCG@${AT} ${ndcg}`)
  }
  await memory.dispose()
}

async function embedAll(embedder, texts) {
  const vectors = []
  for (let from = 0; from < texts.length; from += 500)
    vectors.push(...(await embedder.embed(texts.slice(from, from + 500).map((text) => text || ' '))).embeddings)
  return vectors
}

await measured('tags of papers', tagsOfPapers())
await measured('notes of tags', notesOfTags())
