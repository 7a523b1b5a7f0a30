// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// TemporaryList is the list of temporary rules, which are evaluated before the rules of the policy.
type TemporaryList struct {
	Rules []control.RuleStatus `json:"rules"`
}

func (c *Call) temporary(ctx context.Context) (TemporaryList, error) {
	list, err := c.parts.Host.Temporary(ctx)
	return TemporaryList{list}, err
}

func addTemporaryText(o operate.TemporaryOrder) string {
	return "temporary add " + shortened([]string{o.Rule}) + " for " + o.For
}

func (c *Call) addTemporary(ctx context.Context, o operate.TemporaryOrder) (*manifest.Temporary, error) {
	return c.parts.Host.AddTemporary(ctx, o)
}

// TemporaryNames are the names of temporary rules to remove.
type TemporaryNames struct {
	Names []string `json:"names"`
}

func removeTemporaryText(o TemporaryNames) string {
	return "temporary remove " + strings.TrimSpace(shortened(o.Names))
}

func (c *Call) removeTemporary(ctx context.Context, o TemporaryNames) (Nothing, error) {
	return Nothing{}, c.parts.Host.RemoveTemporary(ctx, o.Names...)
}
