/** How the page is built: into web/dist, which is committed and stands in the program (src/server/page). */
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vite'
import solid from 'vite-plugin-solid'

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url))

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
    rolldownOptions: {
      output: {
        // Names without the text of a file in them would be kept by browsers for longer than they are right.
        entryFileNames: 'assets/[name]-[hash].js',
        chunkFileNames: 'assets/[name]-[hash].js',
        assetFileNames: 'assets/[name]-[hash][extname]',
      },
    },
  },
  // `npx vite web`, beside a server on its default port.
  server: { proxy: Object.fromEntries(['/sessions', '/events', '/health', '/models', '/agents', '/tools', '/skills', '/commands', '/runs', '/permissions'].map((path) => [path, 'http://127.0.0.1:4100'])) },
})
