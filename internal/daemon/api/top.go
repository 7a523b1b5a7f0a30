package api

import (
	"context"
	"net/http"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/policy"
)

// The times over which traffic is looked at.
const (
	usualTop     = 2 * time.Second
	usualSuggest = 5 * time.Second
	MaxLook      = 30 * time.Second // at a time
)

var lookQuery = []Parameter{{Name: "for", Summary: "look at the traffic for this time, as 5s; 30s at most"}}

// top watches what comes. All who want the usual time get the same look, as each one takes samples; of others few look at a time.
func (c *Call) top(ctx context.Context) (*operate.Top, error) {
	if c.request.URL.Query().Get("for") == "" {
		return c.now.get(ctx)
	}
	return look(c, ctx, usualTop, c.parts.Host.Top)
}

// suggest looks for rules. It knows no baseline: files of this host are not the client's to name.
func (c *Call) suggest(ctx context.Context) (*operate.Suggestion, error) {
	return look(c, ctx, usualSuggest, func(ctx context.Context, span time.Duration) (*operate.Suggestion, error) {
		return c.parts.Host.Suggest(ctx, operate.Search{For: span})
	})
}

// samples streams samples of the traffic to one who evaluates them with a policy and captures of their own, as `floodwall suggest --live`.
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

// look runs what looks at traffic for the time that the query says.
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
