// A page that is opened as a file may not start a worker, which the search needs: here one runs in a hidden frame.
// The name of this file tells the theme that the page has this; otherwise it would load the same from the network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.setAttribute("aria-hidden", "true")
      document.body.append(frame)
      this.inner = frame.contentWindow
      this.waiting = []
      // What the worker posts arrives here; it is copied as between threads, and later than the call.
      this.inner.postMessage = data => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })))
      this.inner.importScripts = () => {}
      const script = this.inner.document.createElement("script")
      script.src = new URL(url, location.href)
      script.onload = () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach(data => this.postMessage(data))
      }
      this.inner.document.head.append(script)
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.inner.dispatchEvent(new MessageEvent("message", { data }))
    }
  }
}
