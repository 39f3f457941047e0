/** The OpenAPI document, as the client needs it: operations by name, and what each of them is. */

/** Who reads a `$ref`. */
export class Document {
  constructor(json) {
    if (!/^3\.1\./.test(json.openapi)) throw new Error(`openapi: expected 3.1, got ${json.openapi}`)
    this.json = json
    this.schemas = json.components?.schemas ?? {}
  }

  /** A value, or what its `$ref` leads to. */
  resolve(value) {
    let found = value
    while (typeof found?.$ref === 'string') {
      const path = found.$ref.replace(/^#\//, '').split('/')
      const target = path.reduce((at, part) => at?.[part.replaceAll('~1', '/').replaceAll('~0', '~')], this.json)
      if (target === undefined) throw new Error(`${found.$ref} leads nowhere`)
      found = target
    }
    return found
  }

  /** All operations, in the document's order. */
  *operations() {
    for (const [path, item] of Object.entries(this.json.paths)) {
      const shared = item.parameters ?? []
      for (const method of METHODS) {
        const operation = item[method]
        if (operation === undefined || operation['x-simse-door'] === true) continue
        yield this.#operation(path, method, { ...operation, parameters: [...shared, ...(operation.parameters ?? [])] })
      }
    }
  }

  #operation(path, method, operation) {
    const name = operation.operationId
    if (!/^[a-z]\w*(\.[a-z]\w*)?$/.test(name ?? ''))
      throw new Error(`${method} ${path}: operationId ${name} is no method's name`)
    const parameters = operation.parameters.map((parameter) => this.resolve(parameter))
    const having = (place) => parameters.filter((parameter) => parameter.in === place)
    const takes = (header) => having('header').some((parameter) => parameter.name.toLowerCase() === header)
    const body = this.resolve(operation.requestBody)
    return {
      name,
      method: method.toUpperCase(),
      path,
      summary: operation.summary ?? '',
      description: operation.description ?? '',
      parameters: [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter]) => parameter),
      described: Object.fromEntries(having('path').map((parameter) => [parameter.name, parameter])),
      query: having('query'),
      key: takes('idempotency-key'),
      version: takes('if-match'),
      body: body && { required: body.required === true, schema: body.content['application/json'].schema },
      ...this.#answers(operation.responses),
    }
  }

  /** What comes back: the schema of each status that is an answer and no error, and of a stream. */
  #answers(responses) {
    const json = {}
    let stream
    let text = false
    for (const [status, reference] of Object.entries(responses)) {
      const { content = {} } = this.resolve(reference)
      const schema = content['application/json']?.schema
      if (schema !== undefined && !this.#isError(schema) && /^[245]\d\d$/.test(status)) json[status] = schema
      if (!status.startsWith('2')) continue
      stream ??= content['text/event-stream']?.schema ?? content['text/event-stream']?.itemSchema
      text ||= Object.keys(content).some((type) => type.startsWith('text/plain'))
    }
    return { json, stream, text }
  }

  #isError(schema) {
    const { properties } = this.resolve(schema)
    return properties !== undefined && Object.keys(properties).length === 1 && properties.error !== undefined
  }

  /** What an operation is to its caller. */
  kindOf(operation) {
    const answers = Object.values(operation.json)
    if (operation.stream !== undefined) return answers.length > 0 ? 'prompt' : 'events'
    if (answers.length === 0) return 'text'
    const pages = answers.every((schema) => this.variantsOf(schema).every((variant) => this.#isPage(variant)))
    return pages && operation.query.some(({ name }) => name === 'cursor') ? 'list' : 'call'
  }

  #isPage({ properties }) {
    return properties?.items !== undefined && properties.nextCursor !== undefined
  }

  /** What its answers must have, in each of the ways in which they may be: names, and of what kinds the values are (none: any). */
  shapesOf(operation) {
    const ways = Object.values(operation.json).flatMap((schema) => this.variantsOf(schema))
    const shapes = ways.map(({ required = [], properties = {} }) =>
      [...required].sort().map((name) => [name, this.#kinds(properties[name])]),
    )
    return shapes.filter((shape, at) => shapes.findIndex((one) => JSON.stringify(one) === JSON.stringify(shape)) === at)
  }

  #kinds(schema) {
    const kinds = [this.resolve(schema)?.type ?? []].flat()
    return kinds.map((kind) => (kind === 'integer' ? 'number' : kind))
  }

  /** A schema's alternatives, resolved; itself when it has none. */
  variantsOf(schema) {
    const found = this.resolve(schema)
    const several = found.oneOf ?? found.anyOf
    return several && found.properties === undefined ? several.flatMap((each) => this.variantsOf(each)) : [found]
  }

  /** The values of `type` in a union of events. `ready` is the stream's own word, and no event. */
  typesOf(schema) {
    const types = this.variantsOf(schema).map((variant) => {
      const type = this.resolve(variant.properties?.type)
      return type?.const ?? (type?.enum?.length === 1 ? type.enum[0] : undefined)
    })
    if (types.includes(undefined)) throw new Error('an event without a constant `type`')
    return types.filter((type) => type !== 'ready')
  }
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete']
