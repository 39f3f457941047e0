/** What stands beside a session's timeline: its plan, the tasks and agents of its tree, what changed, and how full its context is. */

import type {
  AgentPlan,
  AgentUsage,
  DiffView,
  Display,
  Event,
  RunView,
  SessionView,
  TaskView,
  TurnChanges,
  Usage,
} from 'simse/client'
import { batch } from 'solid-js'
import { client } from '../connection.ts'
import { cell } from '../parts/cell.ts'

/** A sub-agent of this session, as its events tell of it. */
export interface Run {
  readonly runId: string
  readonly sessionId: string
  readonly parentRunId: string | undefined
  readonly name: string
  readonly model: string
  readonly task: string
  readonly status: string
  readonly startedAt: number
  readonly endedAt: number | undefined
  readonly depth: number
}

const runOf = (view: RunView): Run => ({
  runId: view.runId,
  sessionId: view.sessionId,
  parentRunId: view.parentRunId,
  name: view.name ?? view.agent,
  model: view.model,
  task: view.prompt,
  status: view.status,
  startedAt: view.startedAt ?? view.createdAt,
  endedAt: view.endedAt,
  depth: view.depth,
})

/** Runs of a tree that are looked at, at most. */
const RUNS_MAX = 200

export class Side {
  readonly plans = cell<readonly AgentPlan[]>([])
  readonly tasks = cell<readonly TaskView[]>([])
  readonly runs = cell<readonly Run[]>([])
  readonly turns = cell<readonly TurnChanges[]>([])
  /** Tokens of the last request. */
  readonly usage = cell<Usage | undefined>(undefined)
  readonly agentUsage = cell<AgentUsage | undefined>(undefined)
  readonly displays = cell<readonly Display[]>([])
  /** Counts up when files changed: what is shown of them is old. */
  readonly changed = cell(0)
  #due = new Set<'tasks' | 'runs' | 'turns'>()
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(readonly sessionId: string) {}

  begin(view: SessionView): void {
    this.displays.set(view.snapshot?.open?.displays ?? [])
    for (const what of ['tasks', 'runs', 'turns'] as const) this.#ask(what)
    void this.#agent()
    void this.#lastUsage()
  }

  async #agent(): Promise<void> {
    try {
      const state = await client.sessions.agent(this.sessionId)
      batch(() => {
        this.plans.set(state.plans)
        this.agentUsage.set(state.usage)
      })
    } catch {
      // Only agents have such a state.
    }
  }

  /** How full the context was with the last request. */
  async #lastUsage(): Promise<void> {
    try {
      const page = await client.sessions.turns(this.sessionId, { limit: 1 }).page()
      const last = page.items[0]
      if (last !== undefined && last.rounds === 1 && this.usage() === undefined) this.usage.set(last.usage)
    } catch {
      // It is shown with the next turn.
    }
  }

  take(event: Event): void {
    switch (event.type) {
      case 'agent.plan': {
        const plan = event.payload
        const others = this.plans().filter((one) => one.planId !== plan.planId)
        this.plans.set(plan.entries.length === 0 && plan.text === undefined ? others : [...others, plan])
        break
      }
      case 'agent.usage':
        this.agentUsage.set(event.payload)
        break
      case 'turn.complete':
        if (event.payload.usage !== undefined) this.usage.set(event.payload.usage)
        break
      case 'client.display':
        this.#display(event.payload.display)
        break
      case 'turn.changes':
      case 'changes.undone':
      case 'changes.redone':
        this.changed.set(this.changed() + 1)
        this.#ask('turns')
        break
      case 'task.create':
      case 'task.update':
      case 'task.delete':
        this.#ask('tasks')
        break
      case 'subagent.start':
      case 'subagent.queued':
      case 'subagent.complete':
      case 'subagent.error':
        this.#ask('runs')
        break
      case 'session.completed':
      case 'session.error':
      case 'abort':
        this.displays.set([])
        this.#ask('runs')
        break
      default:
    }
  }

  #display(display: Display): void {
    const same = (one: Display) =>
      one.kind === display.kind && ('key' in one && 'key' in display ? one.key === display.key : true)
    const empty = 'lines' in display ? display.lines === undefined : !('text' in display) || display.text === undefined
    const others = this.displays().filter((one) => !same(one))
    this.displays.set(empty ? others : [...others, display])
  }

  /** Asks once for what many events say at once. */
  #ask(what: 'tasks' | 'runs' | 'turns'): void {
    this.#due.add(what)
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      const due = this.#due
      this.#due = new Set()
      for (const one of due) void this.#load(one)
    }, 60)
  }

  async #load(what: 'tasks' | 'runs' | 'turns'): Promise<void> {
    try {
      if (what === 'tasks') this.tasks.set((await client.sessions.tasks(this.sessionId).page()).items)
      else if (what === 'turns') this.turns.set((await client.sessions.diff(this.sessionId)).turns)
      else {
        const runs: Run[] = []
        for await (const run of client.runs.list({ sessionId: this.sessionId })) {
          runs.push(runOf(run))
          if (runs.length >= RUNS_MAX) break
        }
        this.runs.set(runs.sort((a, b) => a.startedAt - b.startedAt))
      }
    } catch {
      // What is shown stays; the next event asks again.
    }
  }

  /** What a turn did to files, or all of them. */
  diff(turnId?: string): Promise<DiffView> {
    return client.sessions.diff(this.sessionId, turnId === undefined ? {} : { turn: turnId })
  }
}
