// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// Health reports whether the policy is in force.
type Health struct {
	InForce    bool                 `json:"in_force"`
	Reason     string               `json:"reason"`
	Policy     string               `json:"policy,omitempty"`
	Generation int                  `json:"generation"`      // 0: no policy runs
	Trial      *control.TrialStatus `json:"trial,omitempty"` // the policy runs, but is not confirmed yet
}

// HealthOf returns the health that follows from a result of Status. It returns every error except ErrNotLoaded, because the health is then unknown.
func HealthOf(s *control.Status, err error) (Health, error) {
	switch {
	case errors.Is(err, datapath.ErrNotLoaded):
		return Health{Reason: err.Error()}, nil
	case err != nil:
		return Health{}, err
	}
	h := Health{InForce: len(s.Open) == 0, Policy: s.Policy, Generation: s.Generation, Trial: s.Trial}
	switch {
	case !h.InForce:
		h.Reason = strings.Join(s.Open, "; ")
	case s.Trial != nil:
		h.Reason = fmt.Sprintf("generation %d is in force, on trial for another %.0f s", s.Generation, s.Trial.Left)
	default:
		h.Reason = fmt.Sprintf("generation %d is in force", s.Generation)
	}
	return h, nil
}

// Health reads the health from the kernel.
func (h Host) Health(ctx context.Context) (Health, error) {
	return HealthOf(h.Instance.Status(ctx))
}
