package rig

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/bench/tools"
)

// Installed adds a row for what a tool of the system installs at a site of its own.
func (b *Builder) Installed(name, label string, install func(*Site) error) error {
	b.Steps.Show("installing %s", label)
	at, err := b.NewSite()
	if err != nil {
		return err
	}
	reason, err := tools.Tolerate(install(at))
	if err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	b.Add(&Rate{Name: name, Label: label, Subject: Subject{Site: at}, Missing: reason})
	return nil
}
