// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHandler reads parts. Values with the same labels must be summed. When one part fails, the scrape must fail, without the values of the others.
func TestHandler(t *testing.T) {
	n := NewCounter("floodwall_test_total", "for a test", "rule")
	works := Part{Families: []*Family{n}, Read: func(_ context.Context, add Add) error {
		add(n, 2, "a")
		add(n, 3, "a")
		add(n, 4, "b")
		return nil
	}}
	scrape := func(parts ...Part) (int, string) {
		out := httptest.NewRecorder()
		Handler(parts...).ServeHTTP(out, httptest.NewRequest("GET", "/v1/metrics", nil))
		return out.Code, out.Body.String()
	}
	status, text := scrape(works)
	for _, want := range []string{"floodwall_test_total{rule=\"a\"} 5\n", "floodwall_test_total{rule=\"b\"} 4\n", "process_resident_memory_bytes "} {
		if status != 200 || !strings.Contains(text, want) {
			t.Errorf("status %d, want %s in\n%s", status, want, text)
		}
	}
	fails := Part{Families: []*Family{NewGauge("floodwall_test_gone", "for a test")}, Read: func(context.Context, Add) error {
		return errors.New("the kernel does not tell")
	}}
	if status, text := scrape(works, fails); status != 500 || strings.Contains(text, "floodwall_test_total{") {
		t.Errorf("one part fails: status %d\n%s", status, text)
	}
}
