/** Where the page begins. */
import { render } from 'solid-js/web'
import { App } from './App.tsx'
import { begin } from './connection.ts'

const page = document.getElementById('page')
if (page === null) throw new Error('the page has no place for itself')
page.replaceChildren()
render(() => <App />, page)
void begin()
