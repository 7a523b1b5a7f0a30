// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
)

func (c *Call) fullStatus(ctx context.Context) (*control.Status, error) { return c.status.get(ctx) }

// RuleList is all rules, checks and defaults, with their counters.
type RuleList struct {
	Rules   []control.RuleStatus `json:"rules"`
	Checks  []control.RuleStatus `json:"checks"`
	Default control.RuleStatus   `json:"default"`
}

func (c *Call) rules(ctx context.Context) (RuleList, error) {
	s, err := c.status.get(ctx)
	if err != nil {
		return RuleList{}, err
	}
	return RuleList{s.Rules, s.Checks, s.Default}, nil
}

// SetList is all named sets.
type SetList struct {
	Sets []control.SetStatus `json:"sets"`
}

func (c *Call) sets(ctx context.Context) (SetList, error) {
	s, err := c.status.get(ctx)
	if err != nil {
		return SetList{}, err
	}
	return SetList{s.Sets}, nil
}

var healthResult operate.Health

// health answers with an error status when the policy is not in force.
func (c *Call) health() error {
	h, err := operate.HealthOf(c.status.get(c.request.Context()))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if !h.InForce {
		status = http.StatusServiceUnavailable
	}
	return c.answer(status, h)
}

// badQuery returns the error for a parameter of the query that cannot be parsed.
func badQuery(name, got, want string) error {
	return &Error{http.StatusBadRequest, fmt.Sprintf("query %s: %q is not %s", name, got, want), ""}
}
