/** How the page is built: into web/dist, which is committed and stands in the program (src/server/page.rs). */
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vite'
import solid from 'vite-plugin-solid'

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url))

/** The server that `npx vite web` puts itself before. */
const SERVER = process.env.SIMSE_URL ?? 'http://127.0.0.1:4100'
const PATHS = ['sessions', 'events', 'health', 'models', 'agents', 'tools', 'skills', 'commands', 'runs', 'permissions']
const proxy = Object.fromEntries(
  PATHS.map((path) => [`/${path}`, { target: SERVER, changeOrigin: true, headers: { origin: SERVER } }]),
)

export default defineConfig({
  root: here('.'),
  base: './',
  plugins: [solid()],
  resolve: { alias: { 'simse/client': here('../js/client/index.js') } },
  build: {
    target: 'es2022',
    outDir: here('dist'),
    emptyOutDir: true,
    // Nothing inline: the page's own rules forbid it (content security policy).
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // The licences of what stands in the page; they are shown beside it.
    license: { fileName: 'licenses.md' },
    rolldownOptions: {
      output: {
        entryFileNames: 'assets/[name]-[hash].js',
        chunkFileNames: 'assets/[name]-[hash].js',
        assetFileNames: 'assets/[name]-[hash][extname]',
      },
    },
  },
  server: { proxy },
  preview: { proxy },
})
