/** js/client.cjs: the modules of js/client as one file for `require`, and so for all of Node: one state, however it is loaded. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** In an order in which each names only those before it. */
const MODULES = ['errors', 'time', 'frames', 'call', 'list', 'stream', 'requests', 'operations', 'client', 'local']
const EXPORTS = ['createSimseClient', 'EVENT_TYPES', 'SimseError']

const HEAD = '/** `simse/client` for Node: js/client in one file, made by scripts/client.mjs. Do not edit it. */\n'

/** A module without what it takes from and gives to the others; `seen` holds the names of those before it. */
function flat(text, file, seen) {
  const imports = [...text.matchAll(/^import \{([^}]*)\} from '([^']+)'\n/gm)]
  for (const [, names, from] of imports) {
    if (!/^\.\/\w+\.js$/.test(from)) throw new Error(`${file} imports ${from}`)
    for (const name of names
      .split(',')
      .map((each) => each.trim())
      .filter(Boolean))
      if (!seen.has(name))
        throw new Error(`${file} imports ${name} from ${from}, which comes later or under another name`)
  }
  const body = text
    .replace(/^import \{[^}]*\} from '[^']+'\n/gm, '')
    .replace(/^export (?=(async |function|class|const))/gm, '')
  if (/^(import|export)\b/m.test(body)) throw new Error(`${file}: an import or export in a form that is not known here`)
  for (const [, name] of body.matchAll(/^(?:async )?(?:function\*?|class|const|let) (\w+)/gm)) {
    if (seen.has(name)) throw new Error(`${file}: \`${name}\` stands in another module too`)
    seen.add(name)
  }
  return `// ${file}\n\n${body.replace(/^\/\*\*[\s\S]*?\*\/\n+/, '').trim()}\n`
}

/** The file. `operations` is the text of the module that is made, too. */
export function commonJs(directory, operations) {
  const seen = new Set()
  const parts = MODULES.map((name) => {
    const text = name === 'operations' ? operations : readFileSync(join(directory, `${name}.js`), 'utf8')
    return flat(text, `${name}.js`, seen)
  })
  return `${HEAD}'use strict'\n\n${parts.join('\n')}\nmodule.exports = { ${EXPORTS.join(', ')} }\n`
}
