// Package periodic has what repeats and what waits: Run does a task again and again, tasks that look again and again do so at
// the same times, an answer is shared by all who ask the same at nearly the same time, and Within waits for an answer no longer
// than a context lasts. It has no task of its own.
//
//	periodic.Run(ctx, time.Minute, look)
//	answer, err := periodic.Within(ctx, ask)
package periodic
