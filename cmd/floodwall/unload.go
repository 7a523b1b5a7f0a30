package main

import (
	"context"

	"github.com/spf13/cobra"
)

func unloadCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "unload",
		Short: "detach from all devices and remove everything",
		Args:  none,
		RunE:  func(c *cobra.Command, _ []string) error { return unload(c.Context(), e) },
	}
}

func unload(ctx context.Context, e *env) error {
	in, err := e.instance()
	if err != nil {
		return err
	}
	if err := in.Unload(ctx); err != nil {
		return err
	}
	e.println("unloaded: nothing is filtered any more")
	return nil
}
