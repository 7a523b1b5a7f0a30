// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/policy"
)

// restore applies the policy that was saved for boot.
func restore(ctx context.Context, e *env) error {
	in, err := e.Host()
	if err != nil {
		return err
	}
	return in.Restore(ctx, func(a *control.Applied, p *policy.Policy) { e.Println("%s", appliedLine(a, p, applyFlags{})) })
}
