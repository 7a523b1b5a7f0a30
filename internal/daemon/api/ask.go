// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
)

// Question asks how the loaded policy would decide about a packet.
type Question struct {
	Packet string `json:"packet"` // in the notation of `floodwall explain`
}

// explain asks the loaded policy how it treats a packet. With rules in netfilter this takes a network namespace, so only few questions are answered
// at a time.
func (c *Call) explain(ctx context.Context, q Question) (control.Explanation, error) {
	release, err := c.questions.wait(ctx)
	if err != nil {
		return control.Explanation{}, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	return c.parts.Host.Explain(ctx, q.Packet)
}

var entriesQuery = []Parameter{
	{Name: "after", Summary: "the prefix after which the page begins, `next` of the page before"},
	{Name: "limit", Summary: "how many entries a page has at most: 1000 if not said, 10000 at most"},
}

// usualPage is the number of entries of a page when the client gives no limit.
const usualPage = 1000

// entries answers with a page of a dynamic set. Each page reads the whole set, so only one page is read at a time.
func (c *Call) entries(ctx context.Context) (page operate.Page, err error) {
	query := c.request.URL.Query()
	n, err := number(query.Get("limit"), "limit", usualPage, operate.MaxPage)
	if err != nil {
		return page, err
	}
	var after netip.Prefix
	if text := query.Get("after"); text != "" {
		if after, err = netip.ParsePrefix(text); err != nil {
			return page, badQuery("after", text, "a prefix, as 198.51.100.7/32")
		}
	}
	release, err := c.pages.wait(ctx)
	if err != nil {
		return page, err
	}
	defer release()
	page, err = c.parts.Host.Entries(ctx, c.request.PathValue("name"), after, n)
	var set *ban.SetError
	if errors.As(err, &set) {
		err = &Error{http.StatusNotFound, set.Problem, set.Remedy}
	}
	return page, err
}

// scrape answers a scrape of Prometheus.
func (c *Call) scrape() error {
	http.NewResponseController(c.out).SetWriteDeadline(time.Now().Add(readTime + answerTime))
	c.metrics.ServeHTTP(c.out, c.request)
	return nil
}
