// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"time"

	"github.com/floodwall/floodwall/e2e/guest"
)

// run runs the command of a request.
func run(request guest.Request, response *guest.Response) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(request.Seconds)*time.Second)
	cmd := exec.CommandContext(ctx, request.Run[0], request.Run[1:]...)
	cmd.WaitDelay = time.Second // a child process of the command may hold its output open
	if request.Detached {
		if err := cmd.Start(); err != nil {
			response.Error = err.Error()
		}
		go func() { defer cancel(); cmd.Wait() }()
		return
	}
	defer cancel()
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(request.Stdin), &out, &out
	err := cmd.Run()
	response.Out = out.String()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		response.Code = exit.ExitCode()
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		response.Error = err.Error()
	}
	if ctx.Err() != nil {
		response.Error = "it took too long"
	}
}
