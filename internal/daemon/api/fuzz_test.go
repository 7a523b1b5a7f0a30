// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// FuzzRequest sends requests of all kinds to a host without a loaded policy. Every request must get an answer, and errors must be JSON.
func FuzzRequest(f *testing.F) {
	for _, r := range Routes() {
		f.Add(r.Method, prefix+r.Path, "application/json", "{}")
	}
	f.Add("POST", "/v1/explain", "application/json", `{"packet": "tcp 198.51.100.7:1 > 192.0.2.1:80 S"}`)
	f.Add("POST", "/v1/block", "application/json", `{"prefixes": ["198.51.100.1-198.51.100.9", "::/0", "x"], "for": "-1s"}`)
	f.Add("POST", "/v1/apply", "application/json", `{"policy": "/dev/zero", "confirm": "60s"}`)
	f.Add("GET", "/v1/sets/%2e%2e/entries?after=::/129&limit=1e9", "", "")
	f.Add("GET", "/v1/capture?rule=&count=-1&for=99999h", "", "")
	f.Add("DELETE", "//v1//status/..", "text/html", "\x00")
	handler := emptyServer(f).Handler(FromControlSocket)
	f.Fuzz(func(t *testing.T, method, target, contentType, body string) {
		if strings.Contains(target, "events") { // a stream of events ends only when the client disconnects
			return
		}
		request, err := http.NewRequest(method, "http://floodwall"+target, strings.NewReader(body))
		if err != nil {
			return
		}
		request.Header.Set("Content-Type", contentType)
		out := httptest.NewRecorder()
		handler.ServeHTTP(out, request.WithContext(WithPeer(t.Context(), Peer{UID: os.Geteuid(), PID: os.Getpid()})))
		var failure Failure
		if out.Code >= 400 && out.Code != http.StatusServiceUnavailable {
			if err := json.Unmarshal(out.Body.Bytes(), &failure); err != nil || failure.Text == "" {
				t.Errorf("%s %s: status %d, body %q", method, target, out.Code, out.Body)
			}
		}
		if out.Code == http.StatusInternalServerError {
			t.Errorf("%s %s %s: %s", method, target, body, out.Body)
		}
	})
}
