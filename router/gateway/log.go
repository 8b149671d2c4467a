package gateway

import "log/slog"

// log writes the request's line. It goes to the handler itself, which needs no place in the code, and writes also where the
// request's context has ended, as slog says.
func (x *exchange) log() {
	ctx, handler := x.r.Context(), x.h.cfg.Log.Handler()
	if !handler.Enabled(ctx, slog.LevelInfo) {
		return
	}
	now := x.h.cfg.Clock.Now()
	var room [18]slog.Attr // for all of them
	attrs := append(room[:0],
		slog.String("request_id", x.id),
		slog.String("method", clip(x.r.Method)),
		slog.String("path", clip(x.r.URL.Path)),
		slog.Int("status", x.status),
		slog.String("outcome", string(x.outcome)),
		slog.Duration("took", now.Sub(x.began)),
	)
	if x.code != "" {
		attrs = append(attrs, slog.String("code", x.code))
	}
	if x.why != "" {
		attrs = append(attrs, slog.String("why", x.why))
	}
	if x.tier != "" {
		attrs = append(attrs, slog.String("tier", x.tier))
	}
	if x.resumes > 0 {
		attrs = append(attrs, slog.Int("resumes", x.resumes))
	}
	if x.adapter != "" {
		attrs = append(attrs, slog.String("adapter", x.adapter))
	}
	if x.model != "" {
		attrs = append(attrs, slog.String("model", x.model), slog.String("worker", x.worker),
			slog.Bool("stream", x.events != nil), slog.Duration("first_text", x.firstText),
			slog.Uint64("prompt_tokens", uint64(x.usage.Prompt)),
			slog.Uint64("completion_tokens", uint64(x.usage.Completion)),
			slog.Uint64("cached_tokens", uint64(x.usage.Cached)))
	}
	record := slog.NewRecord(now, slog.LevelInfo, "request served", 0)
	record.AddAttrs(attrs...)
	_ = handler.Handle(ctx, record) // where no line can be written, nobody can be told
}
