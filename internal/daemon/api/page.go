// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/metrics"
)

// Past is the counts of decisions in the past minutes.
type Past struct {
	Steps []metrics.Step `json:"steps"` // the oldest first
}

// past answers with the steps that the daemon keeps for the live page.
func (c *Call) past() error {
	var after time.Time
	if text := c.request.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = time.Parse(time.RFC3339, text); err != nil {
			return badQuery("after", text, "a time, as 2026-01-31T12:00:00.5Z")
		}
	}
	release, err := c.pasts.wait(c.request.Context())
	if err != nil {
		return err
	}
	defer release()
	return c.answer(http.StatusOK, Past{c.series.After(after)})
}

// file answers with a file of the live page, or with 304 if the browser has it already.
func (c *Call) file(f *File) error {
	h := c.out.Header()
	h.Set("Cache-Control", "no-cache") // another version of the daemon has other files
	h.Set("ETag", f.Tag)
	h.Set("Content-Type", f.Type)
	h.Set("Content-Security-Policy", Security)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if c.request.Header.Get("If-None-Match") == f.Tag {
		c.started = true
		c.out.WriteHeader(http.StatusNotModified)
		return nil
	}
	return c.write(http.StatusOK, f.Text)
}
