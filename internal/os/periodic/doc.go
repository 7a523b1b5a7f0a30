// SPDX-License-Identifier: Apache-2.0

// Package periodic has functions for periodic tasks and for waiting. Run repeats a task. Periodic tasks wake at the same times. An Answer is shared
// by callers that ask at nearly the same time. Within waits for an answer until a context ends. The package has no task of its own.
//
//	periodic.Run(ctx, time.Minute, look)
//	answer, err := periodic.Within(ctx, ask)
package periodic
