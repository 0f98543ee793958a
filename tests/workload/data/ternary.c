/* A toy engine that speaks as bitnet's binary does: ternary matrix-vector products, words as
 * tokens, and with BITNET_TRACE_TIMING=1 and BITNET_TRACE_QUANT=1 what it says of itself. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZE = 512, LAYERS = 6, ROUNDS = 4 };

static uint8_t weights[LAYERS][SIZE][SIZE / 4];
static float state[SIZE], other[SIZE];

static double now_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e6 + at.tv_nsec / 1e3;
}

/* Four weights of -1, 0 or 1 lie in a byte. */
__attribute__((noinline)) static void i2s_gemv(const uint8_t rows[SIZE][SIZE / 4],
                                               const float *in, float *out)
{
    for (int row = 0; row < SIZE; row++) {
        float sum = 0.0f;
        for (int column = 0; column < SIZE; column++)
            sum += ((rows[row][column / 4] >> (column % 4 * 2) & 3) - 1) * in[column];
        out[row] = sum;
    }
}

__attribute__((noinline)) static void rms_norm(float *x)
{
    float squares = 0.0f;
    for (int i = 0; i < SIZE; i++)
        squares += x[i] * x[i];
    float scale = 1.0f / sqrtf(squares / SIZE + 1e-5f);
    for (int i = 0; i < SIZE; i++)
        x[i] *= scale;
}

__attribute__((noinline)) static void softmax(float *x)
{
    float sum = 0.0f;
    for (int i = 0; i < SIZE; i++)
        sum += x[i] = expf(x[i] > 20.0f ? 20.0f : x[i]);
    for (int i = 0; i < SIZE; i++)
        x[i] /= sum;
}

static void embed(int token, int step)
{
    for (int i = 0; i < SIZE; i++)
        state[i] = (float)((token + step + 1) * (i + 7) % 29 - 14) + 0.25f * state[i];
}

static void forward(void)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int layer = 0; layer < LAYERS; layer++) {
            rms_norm(state);
            i2s_gemv(weights[layer], state, other);
            memcpy(state, other, sizeof state);
        }
}

static int sample(void)
{
    int best = 0;
    for (int i = 1; i < SIZE; i++)
        if (state[i] > state[best])
            best = i;
    return best;
}

int main(int argc, char **argv)
{
    const char *prompt = "", *timing = getenv("BITNET_TRACE_TIMING");
    int max_tokens = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--prompt"))
            prompt = argv[i + 1];
        else if (!strcmp(argv[i], "--max-tokens"))
            max_tokens = atoi(argv[i + 1]);
    }
    uint32_t random = 42;
    for (size_t i = 0; i < sizeof weights; i++) {
        uint8_t packed = 0;
        for (int part = 0; part < 4; part++) {
            random = random * 1664525u + 1013904223u;
            packed |= (uint8_t)((random >> 24) % 3 << part * 2);
        }
        ((uint8_t *)weights)[i] = packed;
    }
    if (getenv("BITNET_TRACE_QUANT"))
        for (int layer = 0; layer < LAYERS; layer++)
            fprintf(stderr, "quant_dispatch: tensor=blk.%d.weight format=I2S kernel=i2s_gemv "
                            "shape=[%d, %d]\n", layer, SIZE, SIZE);
    int token = 0;
    for (const char *c = prompt; *c; c++)
        token = (token * 31 + (unsigned char)*c) % SIZE;
    for (int i = 0; i < max_tokens; i++) {
        double began = now_us();
        embed(token, i);
        double embedded = now_us();
        forward();
        double passed = now_us();
        rms_norm(state);
        softmax(state);
        double weighed = now_us();
        token = sample();
        double sampled = now_us();
        printf("t%d ", token);
        fflush(stdout);
        if (timing)
            fprintf(stderr, "timing: embed_us=%.0f\ntiming: forward_us=%.0f\n"
                            "timing: logits_us=%.0f\ntiming: sample_us=%.0f\n",
                    embedded - began, passed - embedded, weighed - passed, sampled - weighed);
    }
    return 0;
}
