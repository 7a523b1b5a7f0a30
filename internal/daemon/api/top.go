// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/policy"
)

// How long traffic is sampled.
const (
	usualTop     = 2 * time.Second
	usualSuggest = 5 * time.Second
	MaxLook      = 30 * time.Second // the longest
)

var lookQuery = []Parameter{{Name: "for", Summary: "look at the traffic for this time, as 5s; 30s at most"}}

// top samples traffic. All clients that request the usual length share the same samples, because sampling costs CPU time. Only few samplings of other
// lengths run at the same time.
func (c *Call) top(ctx context.Context) (*operate.Top, error) {
	if c.request.URL.Query().Get("for") == "" {
		return c.now.get(ctx)
	}
	return look(c, ctx, usualTop, c.parts.Host.Top)
}

// suggest searches for rules. It uses no baseline, because a client must not name files of this host.
func (c *Call) suggest(ctx context.Context) (*operate.Suggestion, error) {
	return look(c, ctx, usualSuggest, func(ctx context.Context, span time.Duration) (*operate.Suggestion, error) {
		return c.parts.Host.Suggest(ctx, operate.Search{For: span})
	})
}

// samples streams samples of the traffic to a client that evaluates them with its own policy and captures, such as `floodwall suggest --live`.
func (c *Call) samples() error {
	_, err := look(c, c.request.Context(), usualSuggest, func(ctx context.Context, span time.Duration) (none Nothing, err error) {
		tap := c.parts.Host.Tap
		if tap.OneIn() == 0 {
			return none, &Error{http.StatusConflict, "the policy that runs has no samples taken", "write `daemon: {sample: 1/1000}` in a policy for XDP"}
		}
		samples := tap.Follow()
		defer samples.Close()
		limited, cancel := context.WithTimeout(ctx, span)
		defer cancel()
		c.out.Header().Set("Content-Type", "application/x-ndjson")
		c.started = true
		return none, samples.Write(limited, streamWriter{c})
	})
	return err
}

// look runs fn with the time span that the query requests.
func look[R any](c *Call, ctx context.Context, usual time.Duration, fn func(context.Context, time.Duration) (R, error)) (result R, err error) {
	span := usual
	if text := c.request.URL.Query().Get("for"); text != "" {
		if span, err = policy.ParseDuration(text); err != nil || span <= 0 || span > MaxLook {
			return result, badQuery("for", text, "a time of at most 30s, as 5s")
		}
	}
	release, err := c.looks.wait(ctx)
	if err != nil {
		return result, err
	}
	defer release()
	return fn(ctx, span)
}
