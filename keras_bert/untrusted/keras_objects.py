"""The objects that the config of an untrusted `.keras` file may name.

Each kind has the modules and the classes that `keras_bert.save` and Keras write for it. The lists
leave out objects that run code, open files or create data of a size that the file chooses:
`Lambda`, `TFSMLayer`, `HubLayer`, Keras' layers with a vocabulary, `Normalization`, `Arange`,
`Repeat`, `Unstack`, and operations with functions.
"""

from typing import NamedTuple

from keras_bert.runtime.words import words


class Kind(NamedTuple):
    """Modules and classes of one kind of objects."""

    modules: frozenset[str]
    classes: frozenset[str]

    @property
    def is_own(self) -> bool:
        """True for the classes of this package."""
        return OWN_PACKAGE in self.modules


class ObjectArguments(NamedTuple):
    """Arguments that hold objects: their names, and the objects and function names that fit."""

    arguments: frozenset[str]
    kinds: tuple[Kind, ...]
    function_names: frozenset[str] = frozenset()


def _kind(modules: str, classes: str) -> Kind:
    return Kind(words(modules), words(classes))


# Registered under "keras_bert>" and the class name.
OWN_PACKAGE = "keras_bert"
OWN_LAYERS = _kind(
    OWN_PACKAGE,
    """
    Dropout Embeddings SelfAttention TransformerBlock Pooler MaskedLMHead TaskOutput SentencePooling
    WithoutDropout WeightedSum MergeChoices SplitChoices GatherTexts UnitLength Preprocessor
    BertEncoder SpladeHead
    """,
)
OWN_FUNCTIONAL = _kind(OWN_PACKAGE, "TokenModel")
FUNCTIONAL = _kind("keras keras.models keras.src.models.functional", "Functional Model")
SEQUENTIAL = _kind("keras keras.models keras.src.models.sequential", "Sequential")

KERAS_LAYERS = _kind(
    "keras.layers",
    """
    InputLayer Dense EinsumDense Embedding ReversibleEmbedding Identity Activation Masking Wrapper
    ELU LeakyReLU PReLU ReLU Softmax
    Attention AdditiveAttention MultiHeadAttention GroupQueryAttention GroupedQueryAttention
    BatchNormalization GroupNormalization LayerNormalization RMSNormalization UnitNormalization
    Rescaling
    Dropout AlphaDropout GaussianDropout GaussianNoise SpatialDropout1D SpatialDropout2D
    SpatialDropout3D ActivityRegularization
    Add Average Concatenate Dot Maximum Minimum Multiply Subtract
    Flatten Permute Reshape Cropping1D Cropping2D Cropping3D
    Conv1D Conv2D Conv3D Conv1DTranspose Conv2DTranspose Conv3DTranspose DepthwiseConv1D
    DepthwiseConv2D SeparableConv1D SeparableConv2D
    AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D MaxPooling3D
    GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D GlobalMaxPooling1D
    GlobalMaxPooling2D GlobalMaxPooling3D
    Bidirectional TimeDistributed RNN LSTM GRU SimpleRNN
    """,
)
# Layers that may be an argument `activation`. They hold no other layers.
ACTIVATION_LAYERS = _kind("keras.layers", "ELU LeakyReLU PReLU ReLU Softmax")
PREPROCESSORS = _kind(OWN_PACKAGE, "Preprocessor")
CELLS = _kind("keras.layers", "LSTMCell GRUCell SimpleRNNCell StackedRNNCells")
OPERATIONS = _kind(
    "keras.src.ops.numpy keras.src.ops.nn keras.src.ops.core keras.src.ops.math",
    """
    Absolute Add All Amax Amin Any Arccos Arccosh Arcsin Arcsinh Arctan Arctan2 Arctanh Argmax
    Argmin Argsort Average Ceil Clip Concatenate Copy Cos Cosh CountNonzero Cumsum Divide
    DivideNoNan Dot Einsum Equal Exp ExpandDims Expm1 Flip Floor FloorDivide GetItem Greater
    GreaterEqual Isfinite Isinf Isnan Less LessEqual Log Log10 Log1p Log2 Logaddexp LogicalAnd
    LogicalNot LogicalOr LogicalXor Matmul Max Maximum Mean Min Minimum Mod Moveaxis Multiply
    NanToNum Negative NotEqual OnesLike Power Prod Ravel Reciprocal Reshape Round Sign Sin
    Sinh Sort Sqrt Square Squeeze Stack Std Subtract Sum Swapaxes Take TakeAlongAxis Tan Tanh
    Tensordot Transpose TrueDivide Var Where ZerosLike Celu Elu Gelu Glu HardSigmoid HardSilu
    HardTanh LayerNorm LeakyRelu LogSigmoid LogSoftmax Normalize Relu Relu6 RMSNorm Selu Sigmoid
    Silu Softmax Softplus Softsign TanhShrink Cast StopGradient Erf Logsumexp Rsqrt TopK
    """,
)
INITIALIZERS = _kind(
    "keras.initializers",
    """
    Constant Zeros Ones Identity Orthogonal RandomNormal RandomUniform TruncatedNormal
    VarianceScaling GlorotNormal GlorotUniform HeNormal HeUniform LecunNormal LecunUniform
    """,
)
REGULARIZERS = _kind("keras.regularizers", "L1 L2 L1L2 OrthogonalRegularizer")
CONSTRAINTS = _kind("keras.constraints", "MaxNorm MinMaxNorm NonNeg UnitNorm")
DTYPE_POLICIES = _kind(
    "keras keras.dtype_policies",
    "DTypePolicy DTypePolicyMap QuantizedDTypePolicy QuantizedFloat8DTypePolicy Int4DTypePolicy",
)
# Not GPTQConfig and AWQConfig, which hold a data set and a tokenizer.
QUANTIZATIONS = _kind(
    "keras.quantizers",
    "Int4QuantizationConfig Int8QuantizationConfig Float8QuantizationConfig AbsMaxQuantizer",
)
MODELS = (OWN_FUNCTIONAL, FUNCTIONAL, SEQUENTIAL)
LAYERS = (*MODELS, OWN_LAYERS, KERAS_LAYERS)

# Modules of the functions below. Older versions of Keras wrote "builtins".
ACTIVATION_MODULES = words("builtins keras.activations keras.ops keras.src.activations.activations")
# Names, as strings of a config or as functions.
ACTIVATIONS = words(
    """
    celu elu exponential gelu gelu_new gelu_pytorch_tanh glu hard_shrink hard_sigmoid
    hard_silu hard_swish hard_tanh leaky_relu linear log_sigmoid log_softmax mish relu relu6 selu
    sigmoid silu soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid squareplus swish
    tanh tanh_shrink threshold
    """
)
INITIALIZER_NAMES = INITIALIZERS.classes | words(
    """
    zeros zero ones one identity orthogonal random_normal normal random_uniform uniform
    truncated_normal variance_scaling glorot_normal glorot_uniform he_normal he_uniform
    lecun_normal lecun_uniform
    """
)
REGULARIZER_NAMES = words("l1 l2 l1_l2 l1l2 orthogonal_regularizer")
CONSTRAINT_NAMES = words("max_norm min_max_norm non_neg unit_norm")

# Arguments of the listed classes, by what their values may be. Others are refused: `weights`,
# `input_tensor`, `gptq_unpacked_column_size` and the arguments of classes that are not listed.
_WEIGHTS = "alpha beta bias depthwise embeddings gamma kernel pointwise recurrent"


def _of_weights(kind: str, others: str = "") -> frozenset[str]:
    return frozenset(f"{weight}_{kind}" for weight in words(f"{_WEIGHTS} {others}"))


OBJECT_ARGUMENTS = (
    ObjectArguments(
        words("activation hidden_act recurrent_activation"), (ACTIVATION_LAYERS,), ACTIVATIONS
    ),
    ObjectArguments(
        _of_weights("initializer", "moving_mean moving_variance"),
        (INITIALIZERS,),
        INITIALIZER_NAMES,
    ),
    ObjectArguments(_of_weights("regularizer", "activity"), (REGULARIZERS,), REGULARIZER_NAMES),
    ObjectArguments(_of_weights("constraint"), (CONSTRAINTS,), CONSTRAINT_NAMES),
    ObjectArguments(
        words("activation_quantizer quantization_config weight_quantizer"), (QUANTIZATIONS,)
    ),
    ObjectArguments(words("layer forward_layer backward_layer"), LAYERS),
    ObjectArguments(words("cell"), (CELLS,)),
    ObjectArguments(words("preprocessor"), (PREPROCESSORS,)),
)
DTYPE_ARGUMENTS = words("dtype output_dtype reverse_dtype")
SHAPE_ARGUMENTS = words("batch_shape build_input_shape noise_shape output_shape shape target_shape")
# Numbers, Booleans, strings, and short lists of them.
VALUE_ARGUMENTS = words(
    """
    alpha amax_history_length approximate attention_axes axes axis axis1 axis2 batch_size
    bias_axes block_size center cropping data_format decimals depth_multiplier destination
    dilation_rate dims distribution dropout epsilon equation factor filters flash_attention gain
    go_backwards groups head_dim initial input_axes input_dim is_stable k keepdims kernel_size
    key_dim l1 l2 logit_soft_cap lora_alpha lora_rank mask_value mask_zero max_value maxval mean
    merge_mode min_value minval mode momentum name nan negative_slope neginf newshape normalize
    num_heads num_key_value_heads num_query_heads offset optional order output_axes output_dim
    output_padding padding pool_dimensions pool_mode pool_size posinf ragged rank rate
    recurrent_dropout renorm renorm_clipping renorm_momentum reset_after return_sequences
    return_state rms_scaling scale score_mode seed shared_axes sliding_window sorted source
    source_name sparse stateful stddev strides subscripts synchronized threshold tie_weights
    trainable unit_forget_bias units unroll use_bias use_cudnn use_gate use_scale value value_dim
    value_range x_max x_min zero_output_for_mask
    """
)
# Arguments of this package's own layers. `OWN_COLLECTIONS` may be lists and dicts of any length.
OWN_COLLECTIONS = words("added_tokens frozen labels lora mode names noise_shape prompts")
OWN_ARGUMENTS = words(
    """
    activation added_tokens attention_dropout attention_probs_dropout_prob characters
    default_prompt dropout fresh_pooler frozen hidden_dropout_prob hidden_size initializer_range
    intermediate_size keep_width label_type labels layer_norm_eps long_texts lora lowercase
    max_position_embeddings
    max_sequence_length mode multi_label name names no_answer noise_shape normalize
    num_attention_heads num_heads num_hidden_layers pairs pooling prompts rate rematerialize
    seed sequence_length similarity split_cjk strip_accents target_mean target_scale task tied
    trainable type_vocab_size vocab_size
    """
)

# Dtypes of arrays and tensors in a config. Strings and objects are not among them.
DTYPES = words(
    """
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
    """
)
