package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func manCommand(*env) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "write the manual pages to a directory",
		Hidden: true,
		Args:   exactly(1, "DIR, a directory"),
		RunE:   func(c *cobra.Command, args []string) error { return man(c.Root(), args[0]) },
	}
}

// man writes a page for each command.
func man(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "8", Source: "Floodwall", Manual: "System administration"}
	if at, err := time.Parse(time.RFC3339, buildSetting("vcs.time")); err == nil {
		header.Date = &at // that of the commit, so that the same source makes the same pages
	}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	if err := seeAlso(filepath.Join(dir, "floodwall.8"), "floodwall-policy(5)"); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	return nil
}

// seeAlso adds a page to the last section of another, which names pages.
func seeAlso(file, page string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, ".PP\n\\fB%s\\fP\n", page)
	return errors.Join(err, f.Close())
}
