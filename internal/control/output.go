package control

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/plan"
)

// Output compiles for a target as Apply would.
func (c *Compiled) Output(t plan.Target) (*compile.Output, error) {
	o, err := compile.Compile(c.Program, t, c.Devices())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Policy.File, err)
	}
	return o, nil
}
