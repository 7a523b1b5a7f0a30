// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/lists"
)

// FeedList is the sets whose content is fetched, or read from a database.
type FeedList struct {
	Feeds []lists.Status `json:"feeds"`
}

func (c *Call) feeds(ctx context.Context) (FeedList, error) {
	all, err := c.lists.get(ctx)
	return FeedList{all}, err
}

// FeedsOrder names the sets whose lists are to be fetched.
type FeedsOrder struct {
	Sets []string `json:"sets,omitempty"` // all sets when empty
}

func refreshText(o FeedsOrder) string { return "feeds refresh " + shortened(o.Sets) }

func (c *Call) refreshFeeds(ctx context.Context, o FeedsOrder) (*operate.Refreshed, error) {
	return c.parts.Host.RefreshFeeds(ctx, o.Sets...)
}

// FeedOrder names the set whose list is to be accepted.
type FeedOrder struct {
	Set string `json:"set"`
}

func acceptText(o FeedOrder) string { return "feeds accept " + o.Set }

func (c *Call) acceptFeed(ctx context.Context, o FeedOrder) (*operate.Refreshed, error) {
	return c.parts.Host.AcceptFeed(ctx, o.Set)
}
